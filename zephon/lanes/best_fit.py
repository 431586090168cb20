"""`best_fit` and `best_fit_split`: rows that start with the oldest document and take the longest that fit."""

from __future__ import annotations

from collections.abc import Sequence

from zephon.config import Pack
from zephon.item import Item, Row, make_span
from zephon.lanes.pool import Pool
from zephon.lanes.protocol import OperatorState


class BestFit:
    """Best-fit packing from a pool of waiting documents, each row begun with the oldest.

    Best-fit decreasing [Johnson 1973] made online: the pool is the window, and the oldest document first
    bounds the wait to `pool` rows. O(log pool) a document.
    """

    split = False

    def __init__(self, pack: Pack, capacity: int) -> None:
        self._size = pack.pool
        self._align = pack.align
        self._capacity = capacity
        self._pool = Pool()

    def push(self, item: Item) -> None:
        """Add an item to the pool."""
        self._pool.add(item)

    def pop(self, *, last: bool) -> Row | None:
        """Return a row once `pool` items wait."""
        pool, capacity = self._pool, self._capacity
        if not pool or (len(pool) < self._size and not last):
            return None
        if (row := long_row(pool, capacity)) is not None:
            return row
        item = pool.take_oldest()
        spans = [make_span((item, item.start, item.length, 0))]
        offset = item.length - item.start
        while pool:
            offset += -offset % self._align
            found = pool.take_longest(capacity - offset)
            if found is None:
                break
            spans.append(make_span((found, found.start, found.length, offset)))
            offset += found.length - found.start
        if self.split and pool and capacity - offset >= 2:
            # A single token would predict nothing. The oldest is cut, so that its pieces lie in adjacent rows.
            item = pool.cut_oldest(capacity - offset)
            spans.append(make_span((item, item.start, item.start + capacity - offset, offset)))
        return Row(tuple(spans))

    def held(self) -> tuple[Item, ...]:
        """Return the pool, oldest first."""
        return self._pool.items()

    def state(self) -> OperatorState:
        """Return nothing: the pool is all there is."""
        return {}

    def restore(self, state: OperatorState, held: Sequence[Item]) -> None:
        """Take up a pool."""
        self._pool = Pool(held)


class BestFitSplit(BestFit):
    """Best fit whose rest of a row is filled by cutting the oldest waiting document."""

    split = True


def long_row(pool: Pool, capacity: int) -> Row | None:
    """Return a row of the oldest document's next tokens, where it is longer than a row; None where it isn't."""
    item = pool.oldest()
    if item.length - item.start <= capacity:
        return None
    pool.cut_oldest(capacity)
    return Row((make_span((item, item.start, item.start + capacity, 0)),))
