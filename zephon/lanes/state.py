"""What a lane remembers, as immutable values: cheap to take, encoded only when asked for."""

from __future__ import annotations

import msgspec

from zephon.item import Item
from zephon.lanes.protocol import OperatorState

DIGEST_BYTES = 16


class SourceState(msgspec.Struct, frozen=True, gc=False):
    """A source's place in a lane.

    `passed` is its stride-scheduling pass, None while it is off; `next_k` the lane's next block; `pulls` and
    `bad` count samples, `empty` those without documents since the last with one; `open` holds
    (k, samples taken, block hash or 0) of each open block.
    """

    name: str
    passed: int | None
    next_k: int
    pulls: int
    empty: int
    bad: int
    open: tuple[tuple[int, int, int], ...]


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
