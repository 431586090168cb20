"""Budgets: what a row may hold beside tokens, decided from declared metadata alone."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping, Sequence

from zephon.config import Pack
from zephon.item import Item, Row, make_span
from zephon.lanes.best_fit import AGE_BITS, AGE_MASK
from zephon.lanes.protocol import OperatorState

Amounts = Callable[[Item], tuple[int, ...]]


class BudgetedBestFit:
    """Best fit whose rows stay within budgets: the longest document that fits tokens and budgets comes next.

    A row still starts with the oldest document, which has a row of its own where it alone is over a budget.
    O(pool) a document where budgets are what binds.
    """

    def __init__(self, pack: Pack, capacity: int, amounts: Amounts) -> None:
        self._pool = pack.pool
        self._align = pack.align
        self._capacity = capacity
        self._budgets = tuple(pack.budgets.values())
        self._amounts = amounts
        self._arrivals = 0
        self._waiting: dict[int, Item] = {}
        # As in BestFit: remaining tokens, then age.
        self._keys: list[int] = []

    def push(self, item: Item) -> None:
        """Add an item to the pool."""
        self._waiting[self._arrivals] = item
        insort(self._keys, _key(item, self._arrivals))
        self._arrivals += 1

    def pop(self, *, last: bool) -> Row | None:
        """Return a row once `pool` items wait."""
        waiting = self._waiting
        if not waiting or (len(waiting) < self._pool and not last):
            return None
        capacity = self._capacity
        arrival = next(iter(waiting))
        item = waiting[arrival]
        del self._keys[bisect_left(self._keys, _key(item, arrival))]
        if item.length - item.start > capacity:
            # Its amounts are the whole document's, so that each piece has a row of its own.
            stop = item.start + capacity
            waiting[arrival] = item.at(stop)
            insort(self._keys, _key(waiting[arrival], arrival))
            return Row((make_span((item, item.start, stop, 0)),))
        del waiting[arrival]
        left = [budget - amount for budget, amount in zip(self._budgets, self._amounts(item), strict=True)]
        spans = [make_span((item, item.start, item.length, 0))]
        offset = item.length - item.start
        while (found := self._longest(capacity - (offset + -offset % self._align), left)) is not None:
            offset += -offset % self._align
            spans.append(make_span((found, found.start, found.length, offset)))
            offset += found.length - found.start
            left = [room - amount for room, amount in zip(left, self._amounts(found), strict=True)]
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

    def _longest(self, room: int, left: Sequence[int]) -> Item | None:
        """Take out the longest waiting item that fits the room and the budgets left, the oldest of equals."""
        for place in range(bisect_right(self._keys, room << AGE_BITS | AGE_MASK) - 1, -1, -1):
            arrival = AGE_MASK - (self._keys[place] & AGE_MASK)
            item = self._waiting[arrival]
            # A budget that is used up, or overdrawn by the first document, still admits documents without any.
            if all(amount <= max(0, over) for amount, over in zip(self._amounts(item), left, strict=True)):
                del self._keys[place]
                return self._waiting.pop(arrival)
        return None


def amounts_of(names: Sequence[str], metadata: Mapping[str, Sequence[str]]) -> Amounts:
    """Return the function that gives an item's declared amounts by budget; 0 where its source declares none."""
    places = {
        source: tuple(fields.index(name) if name in fields else -1 for name in names)
        for source, fields in metadata.items()
    }

    def amounts(item: Item) -> tuple[int, ...]:
        return tuple(max(0, item.meta[place]) if place >= 0 else 0 for place in places[item.source])

    return amounts


def _key(item: Item, arrival: int) -> int:
    return (item.length - item.start) << AGE_BITS | (AGE_MASK - arrival)
