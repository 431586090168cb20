"""The index of a source: where each of its blocks lies, and the numbers that are part of the plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from zephon.errors import DataError
from zephon.formats.blocks import LARGE, MEDIUM, BlockTable, Int64s
from zephon.formats.sample import Column, column_names
from zephon.page import Location


class SourceIndex:
    """The blocks of a source, numbered in the order of its shards and, within a shard, of its samples.

    name, shards   the source's name and its shards' paths
    num_blocks     at least 1
    num_samples    samples of all blocks
    num_bytes      payload bytes of all blocks, uncompressed
    mean_tokens    an integer guess of a sample's tokens, from the bytes: 1 token is about 4
    block_samples  int64 [num_blocks], samples of each block
    num_dropped    bytes at truncated shards' ends that no block holds
    """

    def __init__(self, name: str, shards: Sequence[str], formats: Sequence[str], tables: Sequence[BlockTable]) -> None:
        """Join the shards' block tables; DataError where no shard has a sample."""
        self.name = name
        self.shards = list(shards)
        self._formats = list(formats)
        self._offset = _join([table.offset for table in tables])
        self._size = _join([table.size for table in tables])
        self._unit = _join([table.unit for table in tables])
        self.block_samples = _join([table.samples for table in tables])
        self._first = _join([np.cumsum(table.samples) - table.samples for table in tables])
        self._grade: NDArray[np.uint8] = np.concatenate([table.grade for table in tables])
        self._medium_spilled = False
        counts = [len(table.offset) for table in tables]
        self._shard: NDArray[np.int32] = np.repeat(np.arange(len(tables), dtype=np.int32), counts)
        self._counts = counts
        self.num_blocks = len(self._offset)
        self.num_samples = int(self.block_samples.sum())
        self.num_bytes = sum(int(table.payload.sum()) for table in tables)
        self.num_dropped = sum(table.dropped for table in tables)
        self._medium_bytes = sum_by_column(table.medium_bytes for table in tables)
        self._large_bytes = sum_by_column(table.large_bytes for table in tables)
        if not self.num_blocks:
            listed = ", ".join(self.shards[:3]) + (", …" if len(self.shards) > 3 else "")
            raise DataError(
                f"sources.{name}: {len(self.shards)} shards without a sample ({listed}); check sources.{name}.path"
            )

    @property
    def mean_tokens(self) -> int:
        """An integer at least 1: payload bytes div (4 · samples)."""
        return max(1, self.num_bytes // (4 * self.num_samples))

    @cached_property
    def hash(self) -> str:
        """The block table's BLAKE2b-128 in hex: per shard that has blocks, their number and each one's
        (offset, size, samples, number of its unit in the shard), int64 little-endian; no path, no time.
        """
        digest = blake2b(digest_size=16)
        start = 0
        for count in self._counts:
            if count:
                part = slice(start, start + count)
                # Numbered, so that compressing a shard anew, at the same bounds, doesn't make it another.
                _, unit = np.unique(self._unit[part], return_inverse=True)
                rows = np.stack([self._offset[part], self._size[part], self.block_samples[part], unit], axis=1)
                digest.update(count.to_bytes(8, "little"))
                digest.update(rows.astype("<i8").tobytes())
                start += count
        return digest.hexdigest()

    def samples_in(self, block: int) -> int:
        """Return the number of samples of a block."""
        count: int = self.block_samples.item(block)
        return count

    def location(self, block: int) -> Location:
        """Return where a block lies."""
        shard = self._shard.item(block)
        return Location(
            self.shards[shard],
            self._formats[shard],
            self._offset.item(block),
            self._size.item(block),
            self._unit.item(block),
            self._first.item(block),
            self.block_samples.item(block),
            self._grade.item(block) == LARGE,
            self._medium_spilled and self._grade.item(block) == MEDIUM,
        )

    def large_total(self, columns: Sequence[Column] | None = None) -> int:
        """Return the bytes that the large units decode to, of these columns where the format has any."""
        return _total(self._large_bytes, columns)

    def medium_total(self, columns: Sequence[Column] | None = None) -> int:
        """Return the bytes that the medium units decode to, of these columns where the format has any."""
        return _total(self._medium_bytes, columns)

    def with_medium_spilled(self) -> SourceIndex:
        """Return the same index, but that locations in medium units say that these are spilled."""
        index = copy(self)
        index._medium_spilled = True
        return index

    def spilled_units(self) -> Iterator[tuple[str, list[int]]]:
        """Yield each shard's path and the units of it that are spilled, where there are any."""
        lowest = MEDIUM if self._medium_spilled else LARGE
        start = 0
        for path, count in zip(self.shards, self._counts, strict=True):
            part = slice(start, start + count)
            units: list[int] = np.unique(self._unit[part][self._grade[part] >= lowest]).tolist()
            if units:
                yield path, units
            start += count


def sum_by_column(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums of bytes by column."""
    sums: dict[str, int] = {}
    for part in parts:
        for column, num_bytes in part.items():
            sums[column] = sums.get(column, 0) + num_bytes
    return sums


def _total(by_column: Mapping[str, int], columns: Sequence[Column] | None) -> int:
    names = None if columns is None else {name for column in columns for name in column_names(column)}
    return sum(num_bytes for column, num_bytes in by_column.items() if not column or names is None or column in names)


def _join(parts: list[Int64s]) -> Int64s:
    joined: Int64s = np.concatenate(parts).astype(np.int64, copy=False)
    return joined
