"""An operator with a mistake in it, as a user might write one."""

from __future__ import annotations

from collections.abc import Sequence

from zephon.item import Item
from zephon.lanes.protocol import OperatorState


class Broken:
    """Passes items on until the tenth, which it trips over."""

    def __init__(self, *, seed: int, lane: int, position: int) -> None:
        self._items: list[Item] = []
        self._count = 0

    def push(self, item: Item) -> None:
        self._items.append(item)

    def pop(self, *, last: bool) -> Item | None:
        if not self._items:
            return None
        self._count += 1
        if self._count == 10:
            raise KeyError("tenth")
        return self._items.pop()

    def held(self) -> tuple[Item, ...]:
        return tuple(self._items)

    def state(self) -> OperatorState:
        return {"count": self._count}

    def restore(self, state: OperatorState, held: Sequence[Item]) -> None:
        self._items = list(held)
