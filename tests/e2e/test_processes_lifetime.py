"""Programs that use worker processes and end in every way: nothing is left, nothing is printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from child_processes import alive, until, workers_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")

HEAD = """
import os, sys, time
from functools import partial
from zephon.backends.processes import ProcessesBackend
from zephon.testing.prepare import numbered, order, waiting
"""
BUSY = """
backend = ProcessesBackend(partial(waiting, numbered, seconds=0.05), workers=2)
backend.take(backend.submit(order(1)))
tickets = [backend.submit(order(block)) for block in range(500)]
"""
STARTING = """
backend = ProcessesBackend(partial(waiting, numbered, seconds=0.05), workers=2)
print("ready", flush=True)
"""
RUNNING = BUSY + 'print("ready", flush=True)\n'


def start(code: str, *, options: tuple[str, ...] = ("-W", "error")) -> subprocess.Popen[str]:
    """Start a program and return it once it says that it is ready."""
    process = subprocess.Popen(
        [sys.executable, *options, "-c", textwrap.dedent(HEAD + code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if line != "ready\n":
        process.kill()
        pytest.fail(f"{line}{process.communicate()[1]}")
    return process


def segments() -> set[str]:
    return {path.name for path in Path("/dev/shm").glob("*zephon*")}


@pytest.mark.parametrize("seconds", [0.05, 60.0])
def test_nothing_is_left_of_a_killed_program(seconds: float) -> None:
    before = segments()
    code = RUNNING + "time.sleep(60)\n"
    if seconds > 1:
        # Workers that are busy for long, and never finish what they are at.
        code = code.replace("backend.take(backend.submit(order(1)))", "time.sleep(0.7)")
    process = start(code.replace("seconds=0.05", f"seconds={seconds}"))
    workers = workers_of(process.pid)
    assert len(workers) == 2
    process.send_signal(signal.SIGKILL)
    _, printed = process.communicate()
    assert until(lambda: not any(map(alive, workers)), seconds=10)
    assert printed == ""
    assert segments() <= before


@pytest.mark.parametrize("code", [RUNNING, STARTING], ids=["at work", "workers starting"])
def test_nothing_is_left_when_a_forked_copy_hides_the_death(code: str) -> None:
    process = start(code + "if not os.fork():\n    time.sleep(20)\ntime.sleep(60)\n")
    try:
        workers = workers_of(process.pid)
        assert len(workers) == 2
        os.kill(process.pid, signal.SIGKILL)
        assert until(lambda: not any(map(alive, workers)), seconds=10)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_interrupt_reaches_the_program_alone() -> None:
    process = start(
        BUSY
        + """
try:
    print("ready", flush=True)
    for ticket in tickets:
        backend.take(ticket)
except KeyboardInterrupt:
    backend.close()
    print("closed", flush=True)
"""
    )
    workers = workers_of(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    out, printed = process.communicate(timeout=30)
    assert (out, printed, process.returncode) == ("closed\n", "", 0)
    assert not any(map(alive, workers))


def test_interrupt_that_nobody_catches_leaves_nothing() -> None:
    process = start(RUNNING + "for ticket in tickets:\n    backend.take(ticket)\n")
    workers = workers_of(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    _, printed = process.communicate(timeout=30)
    assert printed.count("Traceback") == 1
    assert printed.rstrip().endswith("KeyboardInterrupt")
    assert not any(map(alive, workers))


@pytest.mark.parametrize(
    "end",
    ["", "del backend", "sys.exit(0)", "tickets = backend = (backend,)", "sys.modules['kept'] = backend"],
    ids=["falls off", "collected", "exits", "in a tuple", "kept"],
)
def test_a_program_that_never_closes_ends_clean(end: str) -> None:
    process = start(RUNNING + end)
    workers = workers_of(process.pid)
    _, printed = process.communicate(timeout=30)
    assert (printed, process.returncode) == ("", 0)
    assert not any(map(alive, workers))


def test_a_thread_that_waits_at_the_end_of_the_program_is_no_obstacle() -> None:
    process = start(
        RUNNING.replace("seconds=0.05", "seconds=0.2")
        + """
import threading
def take():
    try:
        for ticket in tickets:
            backend.take(ticket)
    except Exception as error:
        pass
threading.Thread(target=take, daemon=True).start()
time.sleep(0.1)
"""
    )
    workers = workers_of(process.pid)
    _, printed = process.communicate(timeout=30)
    assert (printed, process.returncode) == ("", 0)
    assert not any(map(alive, workers))


SCRIPT = (
    HEAD
    + """
def mine():
    prepare = numbered()
    return lambda order: prepare(order)

def run(build):
    print("main", flush=True)
    backend = ProcessesBackend(build, workers=1)
    print(backend.take(backend.submit(order(4))).tokens[0])
    backend.close()
"""
)


@pytest.mark.parametrize("how", ["file", "module", "stdin"])
@pytest.mark.parametrize("guard", [True, False])
@pytest.mark.parametrize("build", ["numbered", "mine"])
def test_any_kind_of_program_can_start_workers(tmp_path: Path, how: str, guard: bool, build: str) -> None:
    """Functions of the program itself need a guard, and a program with a file; nothing else needs either."""
    call = f"run({build})"
    text = SCRIPT + (f"if __name__ == '__main__':\n    {call}\n" if guard else f"{call}\n")
    (tmp_path / "program.py").write_text(text)
    arguments = {"file": [str(tmp_path / "program.py")], "module": ["-m", "program"], "stdin": ["-"]}[how]
    result = subprocess.run(
        [sys.executable, *arguments],
        input=text if how == "stdin" else None,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
    )
    last = result.stderr.strip().rpartition("\n")[2]
    if build == "numbered" or (guard and how != "stdin"):
        assert (result.stdout, result.stderr) == ("main\n4000\n", "")
    elif how == "stdin":
        assert "ConfigError: a worker can't build its stages" in result.stderr
    else:
        assert result.returncode == 1, last
        assert "Error" in last
