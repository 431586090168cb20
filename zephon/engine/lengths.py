"""A feed of recorded lengths: the planner needs no more to make the same rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from zephon.item import Item
from zephon.lanes.spec import LaneSpec
from zephon.stages.fields import unusable


class Lengths(msgspec.Struct, frozen=True):
    """What a source's samples hold, in the order of its blocks and of the samples in them.

    counts   int32 [samples]       documents of each sample
    lengths  int64 [documents]     tokens of each document
    meta     int64 [documents, M]  declared metadata, or None
    bad      {sample: message}     samples that are not what the stage needs
    """

    counts: NDArray[np.int32]
    lengths: NDArray[np.int64]
    meta: NDArray[np.int64] | None
    bad: dict[int, str]


class LengthFeed:
    """A lane's feed without data: items have no payload and no block hash.

    `lengths` has a record for each epoch of a source, or one for all where its stage draws nothing.
    """

    def __init__(self, spec: LaneSpec, lengths: Mapping[str, Sequence[Lengths]], *, skip_bad: bool) -> None:
        self.spec = spec
        self.lengths = lengths
        self.skip_bad = skip_bad
        self.sources = {source.name: source for source in spec.sources}
        self.first_sample = {
            name: np.concatenate(([0], np.cumsum(np.asarray(source.block_samples, np.int64))))
            for name, source in self.sources.items()
        }
        self.first_document = {
            name: [np.concatenate(([0], np.cumsum(record.counts, dtype=np.int64))) for record in records]
            for name, records in lengths.items()
        }

    def open(self, source: str, q: int, taken: int, block_hash: int, *, ahead: bool) -> LengthReader:
        """Return a reader of the block at global ordinal `q`, `taken` samples in."""
        epoch, block, order = self.sources[source].place(self.spec.seed, q)
        record = epoch % len(self.lengths[source])
        return LengthReader(self, source, q, record, int(self.first_sample[source][block]), order, taken)

    def ahead(self, source: str) -> int:
        """Return 0: nothing has to be read."""
        return 0

    def reserve(self, source: str, samples: int) -> int:
        """Return 0: nothing is ordered ahead of need."""
        return 0


class LengthReader:
    """Gives a block's samples from recorded lengths."""

    block_hash = 0

    def __init__(
        self, feed: LengthFeed, source: str, q: int, record: int, first: int, order: list[int], taken: int
    ) -> None:
        self._feed = feed
        self._record = feed.lengths[source][record]
        self._first_document = feed.first_document[source][record]
        self._source = source
        self._q = q
        self._first = first
        self._order = order
        self._taken = taken
        self.samples = len(order)

    def take(self) -> Sequence[Item] | None:
        """Return the next sample's documents after the `long` policy; None for a bad sample that is skipped."""
        feed, name = self._feed, self._source
        record = self._record
        sample = self._order[self._taken]
        number = self._first + sample
        self._taken += 1
        if number in record.bad:
            if feed.skip_bad:
                return None
            raise unusable(name, record.bad[number])
        first = int(self._first_document[number])
        items = []
        capacity, long = feed.spec.capacity, feed.spec.pack.long
        for part in range(int(record.counts[number])):
            length = int(record.lengths[first + part])
            if length > capacity and long == "drop":
                continue
            if length > capacity and long == "truncate":
                length = capacity
            meta = () if record.meta is None else tuple(record.meta[first + part].tolist())
            items.append(Item(name, self._q, sample, part, 0, length, meta))
        return items

    def expect(self) -> None:
        """Do nothing: a record is there."""

    def close(self) -> None:
        """Do nothing: a record needs no closing."""
