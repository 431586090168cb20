"""`concat`: rows filled without a gap, documents cut at the edge, the edge token in both rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from zephon.config import Pack
from zephon.item import Item, Row, Span
from zephon.lanes.protocol import OperatorState


class Concat:
    """Documents one after another; a row's last token is also the next row's first.

    So every token after the stream's first is a label exactly once.
    """

    def __init__(self, pack: Pack, capacity: int) -> None:
        self._align = pack.align
        self._capacity = capacity
        self._waiting: deque[Item] = deque()
        # 1 where the first waiting item's first token was already delivered, as the last row's edge.
        self._edge = 0
        # Where the waiting items end when they are laid out from offset 0.
        self._end = 0

    def push(self, item: Item) -> None:
        """Add an item to the queue."""
        self._waiting.append(item)
        self._end += -self._end % self._align + item.length - item.start

    def pop(self, *, last: bool) -> Row | None:
        """Return a row once it can be filled to its end."""
        if self._end < self._capacity and (not last or self._end <= self._edge):
            return None
        spans: list[Span] = []
        offset = 0
        while self._waiting:
            offset += -offset % self._align
            if offset >= self._capacity:
                break
            item = self._waiting.popleft()
            stop = min(item.length, item.start + self._capacity - offset)
            spans.append(Span(item, item.start, stop, offset))
            offset += stop - item.start
            if offset == self._capacity:
                self._waiting.appendleft(item.at(stop - 1))
                break
        self._edge = int(offset == self._capacity)
        self._measure()
        return Row(tuple(spans))

    def held(self) -> tuple[Item, ...]:
        """Return the queue, oldest first."""
        return tuple(self._waiting)

    def state(self) -> OperatorState:
        """Return whether the first held token was already delivered."""
        return {"edge": self._edge}

    def restore(self, state: OperatorState, held: Sequence[Item]) -> None:
        """Take up a queue."""
        edge = state.get("edge", 0)
        self._edge = edge if isinstance(edge, int) else 0
        self._waiting = deque(held)
        self._measure()

    def _measure(self) -> None:
        self._end = 0
        for item in self._waiting:
            self._end += -self._end % self._align + item.length - item.start
