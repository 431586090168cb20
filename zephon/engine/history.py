"""Which state belongs to which position: the lanes' snapshots of the last few micro-batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from zephon.errors import StateError
from zephon.lanes.compiled import Snapshot, lane_states
from zephon.lanes.state import LaneState


class History:
    """Lane states at the position of the oldest micro-batch kept, and what each later one changed."""

    def __init__(self, position: int, lanes: Mapping[int, LaneState | Snapshot], keep: int) -> None:
        self._base_position = position
        self._base: dict[int, LaneState | Snapshot] = dict(lanes)
        self._changes: deque[tuple[int, Mapping[int, LaneState | Snapshot]]] = deque()
        self._keep = keep

    def add(self, position: int, changes: Mapping[int, LaneState | Snapshot]) -> None:
        """Add the micro-batch handed out last, which leads to `position`; forget those more than `keep` back."""
        self._changes.append((position, changes))
        if len(self._changes) > self._keep:
            self._base_position, oldest = self._changes.popleft()
            self._base.update(oldest)

    def at(self, position: int) -> dict[int, LaneState]:
        """Return the lanes' states at a position. Raises StateError where it isn't held."""
        lanes = dict(self._base)
        if position == self._base_position:
            return lane_states(lanes)
        for place, changes in self._changes:
            lanes.update(changes)
            if place == position:
                return lane_states(lanes)
        held = [self._base_position, *[place for place, _ in self._changes]]
        raise StateError(
            f"no state at consumed={position}: micro-batches end at {', '.join(map(str, held[-8:]))} "
            f"(the oldest held is {held[0]}); ask for one of these, or raise snapshots"
        )
