"""`best_fit` and `best_fit_split`: rows that start with the oldest document and take the longest that fit."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

from zephon.config import Pack
from zephon.item import Item, Row, Span, make_span
from zephon.lanes.protocol import OperatorState

# A waiting item's sort key is its remaining tokens, then its age: older items have larger low bits, so that
# the last key not above a room is the longest item that fits and, among equals, the oldest.
AGE_BITS = 44
AGE_MASK = (1 << AGE_BITS) - 1


class BestFit:
    """Best-fit packing from a pool of waiting documents, each row begun with the oldest.

    Best-fit decreasing [Johnson 1973] made online: the pool is the window, and the oldest document first
    bounds the wait to `pool` rows. O(log pool) a document.
    """

    split = False

    def __init__(self, pack: Pack, capacity: int) -> None:
        self._pool = pack.pool
        self._align = pack.align
        self._capacity = capacity
        self._arrivals = 0
        self._waiting: dict[int, Item] = {}
        self._keys: list[int] = []

    def push(self, item: Item) -> None:
        """Add an item to the pool."""
        arrival = self._arrivals
        self._arrivals = arrival + 1
        self._waiting[arrival] = item
        insort(self._keys, (item.length - item.start) << AGE_BITS | (AGE_MASK - arrival))

    def pop(self, *, last: bool) -> Row | None:
        """Return a row once `pool` items wait."""
        waiting = self._waiting
        if not waiting or (len(waiting) < self._pool and not last):
            return None
        keys, capacity, align = self._keys, self._capacity, self._align
        arrival = next(iter(waiting))
        item = waiting[arrival]
        if item.length - item.start > capacity:
            return Row((self._cut(arrival, item, capacity, 0),))
        del waiting[arrival]
        del keys[bisect_left(keys, (item.length - item.start) << AGE_BITS | (AGE_MASK - arrival))]
        spans = [make_span((item, item.start, item.length, 0))]
        offset = item.length - item.start
        while keys:
            if align > 1:
                offset += -offset % align
            found = bisect_right(keys, (capacity - offset) << AGE_BITS | AGE_MASK) - 1
            if found < 0:
                break
            item = waiting.pop(AGE_MASK - (keys.pop(found) & AGE_MASK))
            start, stop = item.start, item.length
            spans.append(make_span((item, start, stop, offset)))
            offset += stop - start
        if self.split and waiting and capacity - offset >= 2:
            # A single token would predict nothing. The oldest is cut, so that its pieces lie in adjacent rows.
            arrival = next(iter(waiting))
            spans.append(self._cut(arrival, waiting[arrival], capacity - offset, offset))
        return Row(tuple(spans))

    def held(self) -> tuple[Item, ...]:
        """Return the pool, oldest first."""
        return tuple(self._waiting.values())

    def state(self) -> OperatorState:
        """Return nothing: the pool is all there is."""
        return {}

    def restore(self, state: OperatorState, held: Sequence[Item]) -> None:
        """Take up a pool."""
        self._arrivals, self._waiting, self._keys = 0, {}, []
        for item in held:
            self.push(item)

    def _cut(self, arrival: int, item: Item, tokens: int, offset: int) -> Span:
        """Take the first tokens of an item, which keeps its place in the pool."""
        stop = item.start + tokens
        self._waiting[arrival] = item.at(stop)
        age = AGE_MASK - arrival
        del self._keys[bisect_left(self._keys, (item.length - item.start) << AGE_BITS | age)]
        insort(self._keys, (item.length - stop) << AGE_BITS | age)
        return Span(item, item.start, stop, offset)


class BestFitSplit(BestFit):
    """Best fit whose rest of a row is filled by cutting the oldest waiting document."""

    split = True
