"""`pad`: one document a row."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from zephon.config import Pack
from zephon.item import Item, Row, Span
from zephon.lanes.protocol import OperatorState


class Pad:
    """Rows of one document, or one piece of a long one, and padding."""

    def __init__(self, pack: Pack, capacity: int) -> None:
        self._capacity = capacity
        self._waiting: deque[Item] = deque()

    def push(self, item: Item) -> None:
        """Add an item to the queue."""
        self._waiting.append(item)

    def pop(self, *, last: bool) -> Row | None:
        """Return a row as soon as an item waits."""
        if not self._waiting:
            return None
        item = self._waiting.popleft()
        stop = min(item.length, item.start + self._capacity)
        if stop < item.length:
            self._waiting.appendleft(item.at(stop))
        return Row((Span(item, item.start, stop, 0),))

    def held(self) -> tuple[Item, ...]:
        """Return the queue, oldest first."""
        return tuple(self._waiting)

    def state(self) -> OperatorState:
        """Return nothing: the queue is all there is."""
        return {}

    def restore(self, state: OperatorState, held: Sequence[Item]) -> None:
        """Take up a queue."""
        self._waiting = deque(held)
