"""Waiting documents, by age and by length: what the best-fit packers choose from."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence

from zephon.item import Item

# A waiting item's sort key is its remaining tokens, then its age: older items have larger low bits, so that
# the last key not above a room is the longest item that fits and, among equals, the oldest.
AGE_BITS = 44
AGE_MASK = (1 << AGE_BITS) - 1


class Pool:
    """Items in the order of their arrival, found by length in O(log pool)."""

    def __init__(self, items: Sequence[Item] = ()) -> None:
        self._arrivals = 0
        self._waiting: dict[int, Item] = {}
        self._keys: list[int] = []
        for item in items:
            self.add(item)

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, item: Item) -> None:
        """Add an item."""
        self._waiting[self._arrivals] = item
        insort(self._keys, _key(item, self._arrivals))
        self._arrivals += 1

    def items(self) -> tuple[Item, ...]:
        """Return all items, oldest first."""
        return tuple(self._waiting.values())

    def oldest(self) -> Item:
        """Return the oldest item."""
        return self._waiting[next(iter(self._waiting))]

    def take_oldest(self) -> Item:
        """Take out the oldest item."""
        arrival = next(iter(self._waiting))
        item = self._waiting.pop(arrival)
        del self._keys[bisect_left(self._keys, _key(item, arrival))]
        return item

    def take_longest(self, room: int, fits: Callable[[Item], bool] | None = None) -> Item | None:
        """Take out the longest item of at most `room` tokens that `fits`, the oldest of equals; None: there is none.

        O(pool) where many don't fit.
        """
        keys = self._keys
        for place in range(bisect_right(keys, room << AGE_BITS | AGE_MASK) - 1, -1, -1):
            arrival = AGE_MASK - (keys[place] & AGE_MASK)
            if fits is None or fits(self._waiting[arrival]):
                del keys[place]
                return self._waiting.pop(arrival)
        return None

    def cut_oldest(self, tokens: int) -> Item:
        """Return the oldest item, and leave in its place what is left of it after so many tokens."""
        arrival = next(iter(self._waiting))
        item = self._waiting[arrival]
        del self._keys[bisect_left(self._keys, _key(item, arrival))]
        rest = self._waiting[arrival] = item.at(item.start + tokens)
        insort(self._keys, _key(rest, arrival))
        return item


def _key(item: Item, arrival: int) -> int:
    return (item.length - item.start) << AGE_BITS | (AGE_MASK - arrival)
