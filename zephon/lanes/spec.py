"""What a lane needs of the plan: plain numbers and names, no paths, no data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

import msgspec
import numpy as np
from numpy.typing import NDArray

from zephon.config import OperatorConfig, Pack
from zephon.hashing import key
from zephon.permute import order, permute

# A pull of one token is charged 1024, one without documents 1: the mixture's smallest step is 2^-10 token.
TOKEN = 1024
# Endless sources of a finite stream take their epochs of pass p from p * 2^32 on.
ENDLESS_PASS = 1 << 32


def _key_of(purpose: str, seed: int, name: str, epoch: int) -> int:
    return key(seed, purpose, name, epoch)


class SourceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A source as a lane sees it; `block_samples[b]` is the number of samples of block b."""

    name: str
    num_blocks: int
    block_samples: Sequence[int] | NDArray[np.int64]
    mean_tokens: int
    epochs: int | None

    def place(self, seed: int, q: int) -> tuple[int, int, list[int]]:
        """Return (epoch, block, samples in order) of the block at global ordinal `q`."""
        epoch, block = self.block(seed, q)
        return epoch, block, order(key(seed, "samples", self.name, epoch, block), int(self.block_samples[block]))

    def block(self, seed: int, q: int) -> tuple[int, int]:
        """Return (epoch, block) of the block at global ordinal `q`."""
        epoch, slot = divmod(q, self.num_blocks)
        return epoch, permute(_blocks_key(seed, self.name, epoch), slot, self.num_blocks)

    def base(self, pass_number: int) -> int:
        """Return the first global block ordinal of a pass."""
        return pass_number * (ENDLESS_PASS if self.epochs is None else self.epochs) * self.num_blocks

    def end(self, pass_number: int) -> int | None:
        """Return the global block ordinal at which a pass ends, None where it never does."""
        return None if self.epochs is None else (pass_number + 1) * self.epochs * self.num_blocks


# One key serves all of an epoch's blocks; a few epochs of a few sources are open at a time.
_blocks_key = lru_cache(maxsize=1024)(partial(_key_of, "blocks"))


class EntrySpec(msgspec.Struct, frozen=True, kw_only=True):
    """A mixture from sequence `start` on; weights are the smallest integers in proportion."""

    start: int
    weights: dict[str, int]

    def strides(self) -> dict[str, int]:
        """Return each source's stride: (sum of weights * 2^32) div weight."""
        total = sum(self.weights.values())
        return {name: (total << 32) // weight for name, weight in self.weights.items()}


class LaneSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the plan that lanes decide by; `sources` are in the order of their names."""

    seed: int
    lanes: int
    capacity: int
    sources: tuple[SourceSpec, ...]
    entries: tuple[EntrySpec, ...]
    by_samples: bool
    spread: int
    max_empty: int
    max_bad: int | None
    pack: Pack
    operators: tuple[OperatorConfig, ...]
    metadata: dict[str, tuple[str, ...]]
