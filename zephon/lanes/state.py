"""What a lane remembers, as immutable values: cheap to take, encoded only when asked for."""

from __future__ import annotations

import msgspec

from zephon.item import Item
from zephon.lanes.protocol import OperatorState

DIGEST_BYTES = 16
NEXT_K, PULLS, BAD, EMPTY, BLOCKS = range(5)


class SourceState(msgspec.Struct, frozen=True, gc=False):
    """A source's place in a lane.

    `passed` is its stride-scheduling pass, None while it is off. `numbers` are next_k (the lane's next block),
    pulls and bad (counts of samples), empty (samples without documents since the last with one), and then k,
    samples taken and block hash (0: nothing taken) of each open block; flat, because it is copied for every row.
    """

    name: str
    passed: int | None
    numbers: tuple[int, ...]

    @property
    def next_k(self) -> int:
        """The lane's next block."""
        return self.numbers[NEXT_K]

    @property
    def pulls(self) -> int:
        """Samples taken in this pass."""
        return self.numbers[PULLS]

    @property
    def bad(self) -> int:
        """Bad samples skipped in this pass."""
        return self.numbers[BAD]

    @property
    def empty(self) -> int:
        """Samples without documents since the last with one."""
        return self.numbers[EMPTY]

    @property
    def open(self) -> tuple[tuple[int, int, int], ...]:
        """(k, samples taken, block hash or 0) of each open block."""
        blocks = self.numbers[BLOCKS:]
        return tuple(zip(blocks[::3], blocks[1::3], blocks[2::3], strict=True))


class HeldState(msgspec.Struct, frozen=True):
    """What an operator or packer holds."""

    state: OperatorState
    held: tuple[Item, ...]


class LaneState(msgspec.Struct, frozen=True):
    """A lane between two sequences: `sequences` of them emitted in this pass; no sources: not begun."""

    pass_number: int = 0
    sequences: int = 0
    entry: int = 0
    sources: tuple[SourceState, ...] = ()
    operators: tuple[HeldState, ...] = ()
    digest: bytes = bytes(DIGEST_BYTES)

    def sealed(self, digest: bytes) -> LaneState:
        """Return the state with the lane's digest."""
        return msgspec.structs.replace(self, digest=digest)
