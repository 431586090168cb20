"""A producer: made ahead, taken in order, failures in their place, and an end that wakes whoever waits."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from zephon.collate.host import HostBatch
from zephon.engine.engine import Counts, Produced
from zephon.engine.producer import Producer
from zephon.errors import DataError, StoreError


class ScriptedEngine:
    """Gives numbered micro-batches, and at `fail` or `end` an error or the end; `gate` holds it up."""

    def __init__(
        self,
        *,
        fail: int | None = None,
        error: BaseException | None = None,
        end: int | None = None,
        gated: bool = False,
    ) -> None:
        self.made = 0
        self.closed = False
        self.gate = threading.Event()
        self._fail, self._end = fail, end
        self._error = error or DataError("shard 3: broken")
        if not gated:
            self.gate.set()

    def produce(self) -> Produced | None:
        self.gate.wait(20)
        if self.made == self._end:
            return None
        if self.made == self._fail:
            # Only once, as an interrupted fetch would: whoever went on would lose a batch in silence.
            self._fail = None
            raise self._error
        self.made += 1
        host = HostBatch(
            tokens=np.zeros((1, 2), np.int32), pieces=np.zeros((0, 3), np.int32), mask=None, sequences=(self.made,)
        )
        return Produced(host, self.made, {}, Counts(0, 0, 0, {}, {}))

    def close(self) -> None:
        self.closed = True


def producer(engine: ScriptedEngine, prefetch: int) -> Producer:
    return Producer(engine, lambda host: host, prefetch=prefetch)  # type: ignore[arg-type]


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_batches_come_in_order_and_the_end_stays_the_end(prefetch: int) -> None:
    made = producer(ScriptedEngine(end=5), prefetch)
    batches = [made.take() for _ in range(7)]
    assert [None if batch is None else batch.position for batch in batches] == [1, 2, 3, 4, 5, None, None]
    made.close()


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_a_failure_comes_where_its_batch_would_have_and_stays(prefetch: int) -> None:
    made = producer(ScriptedEngine(fail=2), prefetch)
    assert [made.take().position for _ in range(2)] == [1, 2]  # type: ignore[union-attr]
    for _ in range(3):
        # Not once and then the next batch: a row would be missing and nobody would know.
        with pytest.raises(DataError, match="shard 3: broken"):
            made.take()
    made.close()


def test_an_interrupt_while_a_batch_is_made_can_not_lose_it() -> None:
    made = producer(ScriptedEngine(fail=1, error=KeyboardInterrupt()), 0)
    made.take()
    with pytest.raises(KeyboardInterrupt):
        made.take()
    with pytest.raises(StoreError, match="load"):
        made.take()


def test_no_more_is_made_than_prefetch_and_the_one_in_hand() -> None:
    engine = ScriptedEngine()
    made = producer(engine, 3)
    deadline = time.monotonic() + 10
    while engine.made < 4 and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(0.05)
    assert engine.made == 4
    made.close()


def test_without_prefetch_nothing_is_made_ahead() -> None:
    engine = ScriptedEngine()
    made = producer(engine, 0)
    assert engine.made == 0
    made.take()
    assert engine.made == 1
    made.close()
    assert engine.closed


def test_close_wakes_a_take_that_waits() -> None:
    engine = ScriptedEngine(gated=True)
    made = producer(engine, 1)
    raised: list[BaseException] = []

    def take() -> None:
        try:
            made.take()
        except StoreError as error:
            raised.append(error)

    taker = threading.Thread(target=take)
    taker.start()
    time.sleep(0.05)
    closer = threading.Thread(target=made.close)
    closer.start()
    taker.join(10)
    assert not taker.is_alive()
    assert "the loader was closed while a batch was asked for" in str(raised[0])
    engine.gate.set()
    closer.join(10)
    assert not closer.is_alive()
    assert engine.closed


def test_close_leaves_no_thread_and_may_be_repeated() -> None:
    before = set(threading.enumerate())
    made = producer(ScriptedEngine(), 2)
    made.take()
    made.close()
    made.close()
    assert set(threading.enumerate()) <= before
