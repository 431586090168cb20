"""What a format is: how a shard is cut into blocks, and how a block or a whole shard is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from zephon.formats.blocks import BlockTable, Limits, OnTruncated
from zephon.formats.sample import Reading, Sample
from zephon.page import Location
from zephon.stores.protocol import Store


class Format(Protocol):
    """A file format; without state, so that one serves all threads.

    `index`, `read` and `stream` agree: the blocks' samples, in order, are the stream's. All raise
    DataError for bytes that aren't the format's.
    """

    def index(self, store: Store, path: str, size: int, limits: Limits, *, on_truncated: OnTruncated) -> BlockTable:
        """Return the shard's block table; a pure function of its `size` bytes and the limits."""
        ...

    def read(
        self, store: Store, location: Location, samples: Sequence[int], reading: Reading
    ) -> tuple[list[Sample], int]:
        """Return some samples of a block, in the order asked for, and the hash of the block's raw bytes."""
        ...

    def stream(self, store: Store, path: str) -> Iterator[Sample]:
        """Yield all samples of a shard in bounded memory, without a spill."""
        ...
