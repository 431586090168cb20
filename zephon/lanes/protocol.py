"""What a lane is made of: readers that feed it, operators and packers that decide in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from zephon.item import Item, Row

# Small numbers of an operator that a checkpoint must name.
OperatorState = Mapping[str, int | tuple[int, ...]]


class BlockReader(Protocol):
    """Gives the samples of one open block, in block order; it has `samples` of them in all."""

    @property
    def samples(self) -> int:
        """How many samples the block has."""
        ...

    @property
    def block_hash(self) -> int:
        """XXH3-64 of the block's raw bytes; meaningful once a sample was taken."""
        ...

    def take(self) -> Sequence[Item] | None:
        """Return the next sample's documents after the `long` policy; None for a bad sample that is skipped."""
        ...

    def expect(self) -> None:
        """Prepare: the block, opened ahead, is needed soon."""
        ...

    def close(self) -> None:
        """Give up what is left of the block."""
        ...


class Feed(Protocol):
    """Opens blocks for a lane: real ones, or a record of them."""

    def open(self, source: str, q: int, taken: int, block_hash: int, *, ahead: bool) -> BlockReader:
        """Return a reader of the block at global ordinal `q`, `taken` samples in.

        `block_hash` is the hash that the block's bytes had when a state was made; 0: unknown. `ahead`: the
        block isn't needed yet.
        """
        ...

    def ahead(self, source: str) -> int:
        """Return how many blocks of a source to open before they are needed; never changes the order."""
        ...

    def reserve(self, source: str, samples: int) -> int:
        """Return how many samples of a source should be left of the blocks that are open or ahead.

        Those open have `samples` in all. With fewer left the next block is ordered; never changes the order.
        """
        ...


class Operator(Protocol):
    """A stateful part of a lane. It sees references, lengths and metadata, in order, and nothing else.

    Built as `Class(*, seed: int, lane: int, position: int, **options)`, position being its place in the chain.
    """

    def push(self, item: Item) -> None:
        """Accept one item."""
        ...

    def pop(self, *, last: bool) -> Item | None:
        """Return the next output, or None where more input is needed; with `last` no more will come."""
        ...

    def held(self) -> tuple[Item, ...]:
        """Return the items inside, in an order from which `restore` rebuilds the operator."""
        ...

    def state(self) -> OperatorState:
        """Return the numbers besides the held items that fix what the operator does next."""
        ...

    def restore(self, state: OperatorState, held: Sequence[Item]) -> None:
        """Take up a state as `state()` and `held()` gave it."""
        ...


class Packer(Protocol):
    """The last operator of a lane: its outputs are rows. Built as `Class(pack, capacity)`."""

    def push(self, item: Item) -> None:
        """Accept one item."""
        ...

    def pop(self, *, last: bool) -> Row | None:
        """Return the next row, or None where more input is needed; with `last` no more will come."""
        ...

    def held(self) -> tuple[Item, ...]:
        """Return the waiting items, oldest first."""
        ...

    def state(self) -> OperatorState:
        """Return the numbers besides the held items that fix what the packer does next."""
        ...

    def restore(self, state: OperatorState, held: Sequence[Item]) -> None:
        """Take up a state as `state()` and `held()` gave it."""
        ...
