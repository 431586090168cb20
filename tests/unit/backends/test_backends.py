"""The contract that every backend keeps, the fakes of zephon.testing included."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from zephon.backends.inline import InlineBackend
from zephon.backends.processes import ProcessesBackend
from zephon.backends.protocol import Backend, Build
from zephon.backends.threads import ThreadsBackend
from zephon.errors import ConfigError, DataError, StateError, StoreError
from zephon.page import Page
from zephon.registry import BACKENDS, resolve
from zephon.testing.backends import FlakyBackend, ShuffledBackend
from zephon.testing.prepare import bad_shard, failing, numbered, order, unbuildable, waiting

Make = Callable[[Build], Backend]
REAL: list[Any] = [InlineBackend, partial(ThreadsBackend, workers=2), partial(ProcessesBackend, workers=2)]
NAMES = ["inline", "threads", "processes"]
every = pytest.mark.parametrize("make", [*REAL, partial(ShuffledBackend, seed=7)], ids=[*NAMES, "shuffled"])
waiters = pytest.mark.parametrize("make", REAL[1:], ids=NAMES[1:])


def page_values(page: Page) -> tuple[object, ...]:
    columns = (page.tokens, page.offsets, page.counts, page.mask, page.meta)
    arrays = [None if column is None else (column.dtype.str, column.tolist()) for column in columns]
    return (*arrays, page.bad, page.block_hash)


@pytest.mark.parametrize("kind", NAMES)
def test_registered(kind: str) -> None:
    backend = resolve(BACKENDS, kind, place="backend.kind")(numbered, workers=1)
    assert backend.take(backend.submit(order(1))).tokens.size == 15
    backend.close()


@every
@pytest.mark.parametrize("columns", [{}, {"mask": True}, {"meta": 2}, {"mask": True, "meta": 1}, {"num_tokens": 0}])
def test_page_is_what_prepare_returns(make: Make, columns: dict[str, Any]) -> None:
    backend = make(partial(numbered, **columns))
    asked = [order(3), order(4, samples=(70, 5)), order(5, samples=(99,)), order(6, samples=())]
    tickets = [backend.submit(one) for one in asked]
    prepare = numbered(**columns)
    for one, ticket in zip(asked, tickets, strict=True):
        page = backend.take(ticket)
        assert page_values(page) == page_values(prepare(one))
        assert page.tokens.dtype == np.uint32
    backend.close()


@every
def test_pages_dont_depend_on_the_order_of_taking(make: Make) -> None:
    backend = make(numbered)
    tickets = {backend.submit(order(block)): block for block in range(40)}
    taken = list(tickets)
    random.Random(5).shuffle(taken)
    for ticket in taken:
        assert backend.take(ticket).tokens[0] == 1000 * tickets[ticket]
    backend.close()


@every
def test_dropped_tickets_are_gone_and_the_others_are_not(make: Make) -> None:
    backend = make(numbered)
    tickets = [backend.submit(order(block)) for block in range(12)]
    backend.take(tickets[5])
    for ticket in tickets[::2]:
        backend.drop(ticket)
    assert [backend.take(tickets[i]).tokens[0] for i in (1, 3, 7, 9, 11)] == [1000, 3000, 7000, 9000, 11000]
    with pytest.raises(LookupError):
        backend.take(tickets[0])
    with pytest.raises(LookupError):
        backend.take(tickets[1])
    backend.close()


@every
def test_zephon_errors_come_as_they_are(make: Make) -> None:
    errors = {1: DataError("no member 'txt'"), 2: StoreError("gone"), 3: StateError("other"), 4: ConfigError("none")}
    build: Build = numbered
    for block, error in errors.items():
        build = partial(failing, build, block=block, error=error)
    backend = make(build)
    tickets = [backend.submit(order(block)) for block in range(6)]
    for block, error in errors.items():
        with pytest.raises(type(error)) as caught:
            backend.take(tickets[block])
        assert str(caught.value) == str(error)
    assert [int(backend.take(tickets[block]).tokens[0]) for block in (0, 5)] == [0, 5000]
    backend.close()


@every
@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (KeyError("x"), DataError, "KeyError: 'x'"),
        (OSError(5, "Input/output error"), StoreError, "OSError: [Errno 5] Input/output error"),
        (ValueError("two\nlines \udcff"), DataError, "ValueError: two lines \\udcff"),
        (EOFError(), DataError, "EOFError"),
    ],
)
def test_other_errors_get_their_place(make: Make, error: Exception, kind: type[Exception], text: str) -> None:
    backend = make(partial(failing, numbered, block=12, error=error))
    with pytest.raises(kind) as caught:
        backend.take(backend.submit(order(12)))
    assert str(caught.value) == f"source web, block 12 of /data/web.tar: {text}"
    assert "\n" not in str(caught.value)
    # Whoever wrote the stage finds the line that raised.
    notes = "".join(getattr(caught.value, "__notes__", []))
    assert "in wrapped" in notes or caught.value.__cause__ is not None
    backend.close()


@every
def test_errors_of_building_are_raised_by_take(make: Make) -> None:
    backend = make(partial(unbuildable, error=ConfigError("tokenizer: no file /nowhere")))
    ticket = backend.submit(order(1))
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"^tokenizer: no file /nowhere$"):
            backend.take(ticket)
        ticket = backend.submit(order(2))
    backend.close()
    backend = make(partial(unbuildable, error=ImportError("no module named fast")))
    with pytest.raises(ConfigError, match="ImportError") as caught:
        backend.take(backend.submit(order(1)))
    assert str(caught.value) == "a worker can't build its stages: ImportError: no module named fast"
    backend.close()


@every
def test_closed_is_closed(make: Make) -> None:
    backend = make(numbered)
    ticket, other = backend.submit(order(1)), backend.submit(order(2))
    backend.take(ticket)
    backend.close()
    backend.close()
    with pytest.raises(StoreError, match="closed"):
        backend.take(other)
    with pytest.raises(StoreError, match="closed"):
        backend.submit(order(3))
    backend.drop(other)


@waiters
def test_close_wakes_take(make: Make) -> None:
    backend = make(partial(waiting, numbered, seconds=1.0))
    ticket = backend.submit(order(1))
    raised: list[BaseException] = []

    def take() -> None:
        try:
            backend.take(ticket)
        except StoreError as error:
            raised.append(error)

    thread = threading.Thread(target=take)
    thread.start()
    time.sleep(0.2)
    backend.close()
    thread.join(2)
    assert not thread.is_alive()
    assert "closed" in str(raised[0])


@waiters
def test_close_while_orders_are_in_flight(make: Make) -> None:
    backend = make(partial(waiting, numbered, seconds=0.05))
    tickets = [backend.submit(order(block)) for block in range(50)]
    backend.take(tickets[0])
    began = time.monotonic()
    backend.close()
    assert time.monotonic() - began < 2


@waiters
def test_a_slow_order_holds_up_no_worker_but_its_own(make: Make) -> None:
    backend = make(partial(waiting, numbered, seconds=3.0, block=0))
    warm = [backend.submit(order(block)) for block in (8, 9)]
    for ticket in warm:
        backend.take(ticket)
    slow = backend.submit(order(0))
    began = time.monotonic()
    for block in range(1, 12):
        ticket = backend.submit(order(block))
        if block != 1:
            # The one that may queue behind the slow order is taken last.
            assert backend.take(ticket).tokens[0] == 1000 * block
        else:
            second = ticket
    assert time.monotonic() - began < 2.5
    assert backend.take(slow).tokens[0] == 0
    assert backend.take(second).tokens[0] == 1000
    backend.close()


def test_threads_end() -> None:
    before = threading.active_count()
    backend = ThreadsBackend(numbered, workers=4)
    backend.take(backend.submit(order(1)))
    assert threading.active_count() == before + 4
    backend.close()
    assert threading.active_count() == before
    backend = ThreadsBackend(numbered, workers=4)
    backend.take(backend.submit(order(1)))
    del backend
    deadline = time.monotonic() + 2
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


def test_shuffled_backend_finishes_in_an_order_of_its_seed() -> None:
    orders_of_finishing = []
    for seed in (1, 1, 2):
        backend = ShuffledBackend(numbered, workers=3, seed=seed)
        for ticket in [backend.submit(order(block)) for block in range(20)]:
            backend.take(ticket)
        orders_of_finishing.append(backend.finished)
    assert orders_of_finishing[0] == orders_of_finishing[1]
    assert orders_of_finishing[0] != orders_of_finishing[2]
    assert sorted(orders_of_finishing[0]) == list(range(1, 21)) != orders_of_finishing[0]


def test_flaky_backend_fails_and_recovers() -> None:
    backend = FlakyBackend(numbered, workers=1, every=2)
    first, second = backend.submit(order(1)), backend.submit(order(2))
    assert backend.take(first).tokens[0] == 1000
    with pytest.raises(StoreError, match="connection reset"):
        backend.take(second)
    assert backend.take(backend.submit(order(2))).tokens[0] == 2000
    backend.close()


def test_a_stage_may_be_a_plain_function() -> None:
    backend = ThreadsBackend(partial(partial, bad_shard), workers=1)
    with pytest.raises(DataError, match="no member 'txt'"):
        backend.take(backend.submit(order(1)))
    backend.close()


@pytest.mark.parametrize("kind", [ThreadsBackend, ProcessesBackend])
def test_what_is_waited_for_comes_before_what_is_ordered_ahead(kind: type[ThreadsBackend | ProcessesBackend]) -> None:
    backend = kind(partial(waiting, numbered, seconds=0.15), workers=1)
    try:
        tickets = [backend.submit(order(number)) for number in range(12)]
        began = time.monotonic()
        backend.take(tickets[-1])
        # All twelve in turn would take 1.8 s besides the start.
        first = time.monotonic() - began
        for ticket in tickets[:-1]:
            backend.take(ticket)
        assert time.monotonic() - began - first > 6 * 0.15
    finally:
        backend.close()
