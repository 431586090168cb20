"""Worker processes: they die and are replaced, start light, end with their parent, and cost bounded memory."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from child_processes import alive, open_descriptors, resident_bytes, shared_maps, until, workers_of

from zephon.backends.launch import SINGLE_THREADED, launch
from zephon.backends.processes import ProcessesBackend
from zephon.errors import ConfigError, DataError, StoreError
from zephon.testing.prepare import dying, dying_at_start, numbered, order, reporting, waiting
from zephon.tokenizer.engines import WORKER

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


def facts(backend: ProcessesBackend) -> dict[str, str]:
    (_, text), *_ = backend.take(backend.submit(order(0))).bad
    return dict(line.split("=", 1) for line in text.split("\n"))


def test_workers_are_other_processes_and_are_gone_after_close() -> None:
    # Pixels that tracebacks of other tests hold.
    gc.collect()
    descriptors = open_descriptors()
    backend = ProcessesBackend(numbered, workers=3)
    backend.take(backend.submit(order(1)))
    workers = workers_of(os.getpid())
    assert len(workers) == 3
    assert shared_maps() > 0
    backend.close()
    assert not workers_of(os.getpid())
    assert open_descriptors() == descriptors
    assert shared_maps() == 0


def test_workers_are_light_and_single_threaded() -> None:
    backend = ProcessesBackend(reporting, workers=1)
    told = facts(backend)
    assert int(told["pid"]) != os.getpid()
    assert told["torch"] == told["multiprocessing"] == "False"
    # Where a user's function may use signals and what else is bound to it.
    assert told["main"] == "True"
    wanted = SINGLE_THREADED | {WORKER: "1"}
    assert {name: told[name] for name in wanted} == wanted
    backend.close()


def test_an_interpreter_behind_a_script_that_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\n{sys.executable} "$@"\nexit $?\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    backend = ProcessesBackend(numbered, workers=1)
    assert backend.take(backend.submit(order(1))).tokens.size == 15
    backend.close()


def test_a_worker_killed_in_mid_order_changes_nothing(tmp_path: Path) -> None:
    backend = ProcessesBackend(partial(dying, numbered, block=7, times=2, folder=str(tmp_path)), workers=2)
    tickets = [backend.submit(order(block)) for block in range(30)]
    assert [int(backend.take(ticket).tokens[0]) for ticket in tickets] == [1000 * block for block in range(30)]
    assert len(list(tmp_path.iterdir())) == 2
    assert len(workers_of(os.getpid())) == 2
    backend.close()


def test_all_workers_killed_from_outside_are_replaced() -> None:
    backend = ProcessesBackend(partial(waiting, numbered, seconds=0.1), workers=2)
    backend.take(backend.submit(order(0)))
    tickets = [backend.submit(order(block)) for block in range(1, 9)]
    killed = workers_of(os.getpid())
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    assert [int(backend.take(ticket).tokens[0]) for ticket in tickets] == [1000 * block for block in range(1, 9)]
    replaced = workers_of(os.getpid())
    assert len(replaced) == 2
    assert not replaced & killed
    backend.close()


def test_an_order_that_kills_three_workers_is_a_data_error(tmp_path: Path) -> None:
    backend = ProcessesBackend(partial(dying, numbered, block=3, times=99, folder=str(tmp_path)), workers=2)
    tickets = [backend.submit(order(block)) for block in range(8)]
    with pytest.raises(DataError) as caught:
        backend.take(tickets[3])
    text = str(caught.value)
    assert "source web, block 3 of /data/web.tar" in text
    assert "3 worker processes died" in text
    assert "SIGKILL" in text
    assert "\n" not in text
    assert len(list(tmp_path.iterdir())) == 3
    others = [block for block in range(8) if block != 3]
    assert [int(backend.take(tickets[block]).tokens[0]) for block in others] == [1000 * block for block in others]
    backend.close()


def test_workers_that_die_at_their_start_are_a_store_error() -> None:
    backend = ProcessesBackend(partial(dying_at_start, status=23), workers=2)
    for ticket in [backend.submit(order(block)) for block in range(3)]:
        with pytest.raises(StoreError, match=r"died at their start, the last: exit status 23"):
            backend.take(ticket)
    backend.close()
    assert not workers_of(os.getpid())


def test_dropped_orders_of_a_dead_worker_are_not_run_again(tmp_path: Path) -> None:
    backend = ProcessesBackend(partial(dying, numbered, block=1, times=1, folder=str(tmp_path)), workers=1)
    deadly, fine = backend.submit(order(1)), backend.submit(order(2))
    backend.drop(deadly)
    assert backend.take(fine).tokens[0] == 2000
    backend.close()


def test_lambdas_are_refused_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match="functions of a module"):
        ProcessesBackend(lambda: numbered(), workers=1)
    assert not workers_of(os.getpid())


def test_missing_shared_memory_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    descriptors = open_descriptors()
    calls = []

    def full(descriptor: int, offset: int, size: int) -> None:
        calls.append(size)
        if len(calls) > 4:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(StoreError, match="No space left on device"):
        ProcessesBackend(numbered, workers=2)
    assert open_descriptors() == descriptors
    assert not workers_of(os.getpid())


@pytest.mark.parametrize("slot_bytes", [1 << 12, 2 << 20])
def test_a_page_larger_than_the_ring(slot_bytes: int) -> None:
    num_tokens = 13_000_000 if slot_bytes > 1 << 20 else 1_000_000
    backend = ProcessesBackend(partial(numbered, num_tokens=num_tokens), workers=2, slot_bytes=slot_bytes)
    tickets = [backend.submit(order(block, samples=(0,))) for block in (1, 2)]
    for block, ticket in zip((1, 2), tickets, strict=True):
        page = backend.take(ticket)
        assert page.tokens.nbytes == 4 * num_tokens
        assert np.array_equal(page.tokens, np.arange(num_tokens, dtype=np.uint32) + 1000 * block)
    backend.close()


def test_memory_is_flat_over_ten_thousand_small_pages() -> None:
    backend = ProcessesBackend(partial(numbered, num_tokens=2000), workers=2)

    def pass_on(pages: int) -> None:
        tickets = [backend.submit(order(block)) for block in range(8)]
        for block in range(8, pages):
            assert backend.take(tickets.pop(0)).tokens[0] == 1000 * (block - 8)
            tickets.append(backend.submit(order(block)))
        for ticket in tickets:
            backend.take(ticket)

    pass_on(1000)
    gc.collect()
    before, descriptors = resident_bytes(), open_descriptors()
    pass_on(10_000)
    gc.collect()
    # 240 MB went through.
    assert resident_bytes() - before < 8 << 20
    assert open_descriptors() == descriptors
    backend.close()


def test_collected_without_close_leaves_nothing() -> None:
    descriptors = open_descriptors()
    backend = ProcessesBackend(numbered, workers=2)
    backend.take(backend.submit(order(1)))
    workers = workers_of(os.getpid())
    del backend
    gc.collect()
    assert not any(map(alive, workers))
    assert open_descriptors() == descriptors


def test_works_in_a_thread_that_ends() -> None:
    made: list[ProcessesBackend] = []
    thread = threading.Thread(target=lambda: made.append(ProcessesBackend(numbered, workers=1)), daemon=True)
    thread.start()
    thread.join()
    for block in range(3):
        assert made[0].take(made[0].submit(order(block))).tokens[0] == 1000 * block
    made[0].close()


def first_token(_: Any) -> int:
    backend = ProcessesBackend(numbered, workers=1)
    try:
        return int(backend.take(backend.submit(order(4))).tokens[0])
    finally:
        backend.close()


def test_works_in_a_daemonic_process() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(first_token, [0]) == [4000]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_copy_doesnt_end_the_workers() -> None:
    backend = ProcessesBackend(numbered, workers=2)
    backend.take(backend.submit(order(1)))
    workers = workers_of(os.getpid())
    child = os.fork()
    if not child:
        try:
            backend.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert backend.take(backend.submit(order(2))).tokens[0] == 2000
    assert workers_of(os.getpid()) == workers
    backend.close()


def interrupted_at(line: int) -> Any:
    """Return a trace function that raises KeyboardInterrupt at the given line run in zephon.backends, counting all."""
    seen = [0]

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if "zephon/backends" not in frame.f_code.co_filename:
            return None
        if event == "line":
            seen[0] += 1
            if seen[0] == line:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    return trace


@pytest.mark.parametrize("seed", range(2))
def test_an_interrupt_loses_no_order(seed: int) -> None:
    """Ctrl-C strikes anywhere; whoever goes on afterwards gets every page that he asks for again."""
    backend = ProcessesBackend(partial(waiting, numbered, seconds=0.001), workers=2)
    before = sys.gettrace()
    interrupts = 0
    for line in random.Random(seed).sample(range(1, 160), 5):
        tickets = [backend.submit(order(block)) for block in range(12)]
        try:
            sys.settrace(interrupted_at(line))
            backend.take(tickets[6])
        except KeyboardInterrupt:
            interrupts += 1
        finally:
            sys.settrace(before)
        others = [block for block in range(12) if block != 6]
        assert [int(backend.take(tickets[block]).tokens[0]) for block in others] == [1000 * b for b in others]
        backend.drop(tickets[6])
    assert interrupts > 1
    backend.close()
    assert not workers_of(os.getpid())


def test_an_interrupt_while_waiting_costs_nothing() -> None:
    backend = ProcessesBackend(partial(waiting, numbered, seconds=0.5), workers=2)
    ticket = backend.submit(order(3))
    assert until(lambda: len(workers_of(os.getpid())) == 2, seconds=20)
    workers = workers_of(os.getpid())
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            backend.take(ticket)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert backend.take(ticket).tokens[0] == 3000
    assert workers_of(os.getpid()) == workers
    backend.close()


PROGRAM = """
import os, resource, sys
for number in map(int, sys.argv[1].split()):
    os.close(number)
if sys.argv[2] != "0":
    resource.setrlimit(getattr(resource, sys.argv[3]), (int(sys.argv[2]),) * 2)
from zephon.backends.processes import ProcessesBackend
from zephon.page import Wanted
from zephon.testing.prepare import order, painted
backend = ProcessesBackend(painted, workers=2)
pixels = backend.take(backend.submit(order(9, wanted=(Wanted(0, 0, 1, 30, 20),)))).pixels
backend.close()
os._exit(7 if (pixels[0] == 9).all() else 8)
"""


@pytest.mark.parametrize(
    ("closed", "limit", "what"),
    [("0", 0, ""), ("0 1 2", 0, ""), ("", 100 << 20, "RLIMIT_FSIZE"), ("", 40, "RLIMIT_NOFILE")],
)
def test_a_program_with_closed_descriptors_or_few_means(closed: str, limit: int, what: str) -> None:
    command = [sys.executable, "-c", PROGRAM, closed, str(limit), what]
    assert subprocess.run(command, timeout=120, check=False).returncode == 7


def test_closing_from_several_threads_closes_nothing_else() -> None:
    for _ in range(20):
        backend = ProcessesBackend(numbered, workers=1)
        opened: list[int] = []

        def close(backend: ProcessesBackend = backend, opened: list[int] = opened) -> None:
            backend.close()
            opened.extend(os.pipe())

        threads = [threading.Thread(target=close) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        # All of them are still open.
        for descriptor in opened:
            os.close(descriptor)


def test_an_interrupt_in_the_wait_for_a_child_doesnt_stop_the_next() -> None:
    child = launch("launched:flood")
    child.receiver.receive()
    # As Ctrl-C leaves it that strikes within Popen.poll.
    child.process._waitpid_lock.acquire()  # type: ignore[attr-defined]
    child.close(grace_s=0.01)
    assert child.fate() != "still running"
