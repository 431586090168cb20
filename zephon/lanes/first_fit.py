"""`first_fit`: the smallest useful packer, and the worked example of docs/extending.md."""

from __future__ import annotations

from collections.abc import Sequence

from zephon.config import Pack
from zephon.item import Item, Row, Span
from zephon.lanes.protocol import OperatorState


class FirstFit:
    """Rows that take waiting documents in order of age, each that still fits. O(pool) a row."""

    def __init__(self, pack: Pack, capacity: int) -> None:
        self._pool = pack.pool
        self._align = pack.align
        self._capacity = capacity
        self._waiting: list[Item] = []

    def push(self, item: Item) -> None:
        """Add an item to the pool."""
        self._waiting.append(item)

    def pop(self, *, last: bool) -> Row | None:
        """Return a row once `pool` items wait."""
        if not self._waiting or (len(self._waiting) < self._pool and not last):
            return None
        first = self._waiting[0]
        if first.length - first.start > self._capacity:
            stop = first.start + self._capacity
            self._waiting[0] = first.at(stop)
            return Row((Span(first, first.start, stop, 0),))
        spans: list[Span] = []
        left: list[Item] = []
        offset = 0
        for item in self._waiting:
            if offset + item.length - item.start <= self._capacity:
                spans.append(Span(item, item.start, item.length, offset))
                offset += item.length - item.start
                offset += -offset % self._align
            else:
                left.append(item)
        self._waiting = left
        return Row(tuple(spans))

    def held(self) -> tuple[Item, ...]:
        """Return the pool, oldest first."""
        return tuple(self._waiting)

    def state(self) -> OperatorState:
        """Return nothing: the pool is all there is."""
        return {}

    def restore(self, state: OperatorState, held: Sequence[Item]) -> None:
        """Take up a pool."""
        self._waiting = list(held)
