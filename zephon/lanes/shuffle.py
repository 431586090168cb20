"""`shuffle`: an operator that gives documents in keyed order from a buffer of references."""

from __future__ import annotations

from collections.abc import Sequence

from zephon.errors import ConfigError
from zephon.hashing import draw, key
from zephon.item import Item
from zephon.lanes.protocol import OperatorState


class Shuffle:
    """A shuffle buffer that holds references, never data; `buffer` documents of state a lane."""

    def __init__(self, *, seed: int, lane: int, position: int, buffer: int = 64) -> None:
        if not isinstance(buffer, int) or buffer < 1:
            raise ConfigError(f"operators[{position}].options.buffer={buffer!r} must be a whole number of at least 1")
        self._key = key(seed, "shuffle", position, lane)
        self._buffer = buffer
        self._items: list[Item] = []
        self._count = 0

    def push(self, item: Item) -> None:
        """Add an item to the buffer."""
        self._items.append(item)

    def pop(self, *, last: bool) -> Item | None:
        """Return a keyed item once the buffer is full."""
        if not self._items or (len(self._items) < self._buffer and not last):
            return None
        index = draw(self._key, self._count) % len(self._items)
        self._count += 1
        item, self._items[index] = self._items[index], self._items[-1]
        self._items.pop()
        return item

    def held(self) -> tuple[Item, ...]:
        """Return the buffer as it lies."""
        return tuple(self._items)

    def state(self) -> OperatorState:
        """Return the number of items given so far."""
        return {"count": self._count}

    def restore(self, state: OperatorState, held: Sequence[Item]) -> None:
        """Take up a buffer."""
        count = state.get("count", 0)
        self._count = count if isinstance(count, int) else 0
        self._items = list(held)
