"""The block table of a shard, and the rule that cuts samples into blocks."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

OnTruncated = Literal["raise", "skip"]
Int64s = NDArray[np.int64]

# A unit of more blocks than this, or of more bytes than so many blocks may have, is large: decoded into the spill.
LARGE_UNIT_BLOCKS = 16
# One of more blocks than this is medium: spilled where there is room, since it'd be decoded as many times otherwise.
# (Writing a unit of 1 MiB costs about as much as decoding it once.)
SMALL_UNIT_BLOCKS = 2

SMALL, MEDIUM, LARGE = range(3)


class Limits(msgspec.Struct, frozen=True):
    """At most so many samples and about so many bytes a block."""

    samples: int
    bytes: int

    def grade(self, *, num_blocks: int, num_bytes: int) -> int:
        """Return whether a restart unit that decodes to so much is SMALL, MEDIUM or LARGE."""
        if num_blocks > LARGE_UNIT_BLOCKS or num_bytes > LARGE_UNIT_BLOCKS * self.bytes:
            return LARGE
        return MEDIUM if num_blocks > SMALL_UNIT_BLOCKS else SMALL


class BlockTable(msgspec.Struct, frozen=True, kw_only=True):
    """The blocks of one shard, in order; int64 arrays [blocks].

    offset, size, unit  as in Location
    samples             samples of each block, at least 1
    payload             bytes of each block's samples, without the format's own
    grade               SMALL, MEDIUM or LARGE, of each block's unit (uint8); decides what reading costs, no more
    medium_bytes        decoded bytes of the medium units, by column (Parquet) or under "" (all of it)
    large_bytes         the same of the large units
    dropped             bytes at a truncated shard's end that no block holds
    """

    offset: Int64s
    size: Int64s
    unit: Int64s
    samples: Int64s
    payload: Int64s
    grade: NDArray[np.uint8]
    medium_bytes: dict[str, int] = {}
    large_bytes: dict[str, int] = {}
    dropped: int = 0


class Cutter:
    """Cuts consecutive pieces (samples, or samples that can't be parted) into blocks, greedily.

    A block takes pieces while it has at most `limits.samples` samples and spans at most `limits.bytes`
    bytes, and at least one piece. Pieces may come in portions: what is cut doesn't depend on these.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pieces: list[tuple[Int64s, Int64s, Int64s, Int64s]] = []
        self._blocks: list[tuple[int, int, int, int]] = []
        self._offset: list[int] = []
        self._size: list[int] = []
        self._samples: list[int] = []
        self._payload: list[int] = []
        self._unit: list[int] = []
        self._grade: list[int] = []
        self._graded_bytes = [0, 0, 0]

    def add(self, starts: Int64s, ends: Int64s, samples: Int64s, payload: Int64s) -> None:
        """Take pieces: their byte ranges [start, end), numbers of samples, and payload bytes; int64 [n] each."""
        self._pieces.append((starts, ends, samples, payload))
        if sum(len(piece[0]) for piece in self._pieces) > 2 * self._limits.samples:
            self._cut(last=False)

    def close(self, *, unit: int, decoded_bytes: int | None = None) -> None:
        """End the restart unit: no block reaches beyond here. Blocks since the last close belong to `unit`.

        `decoded_bytes` is what has to be decoded to reach them; None: nothing.
        """
        self._cut(last=True)
        grade = SMALL
        if decoded_bytes is not None and self._blocks:
            grade = self._limits.grade(num_blocks=len(self._blocks), num_bytes=decoded_bytes)
            self._graded_bytes[grade] += decoded_bytes
        for offset, size, samples, payload in self._blocks:
            self._offset.append(offset)
            self._size.append(size)
            self._samples.append(samples)
            self._payload.append(payload)
            self._unit.append(unit)
            self._grade.append(grade)
        self._blocks = []

    def table(self, *, dropped: int = 0) -> BlockTable:
        """Return the table of all blocks of closed units."""
        medium_bytes, large_bytes = self._graded_bytes[MEDIUM], self._graded_bytes[LARGE]
        return BlockTable(
            offset=np.array(self._offset, dtype=np.int64),
            size=np.array(self._size, dtype=np.int64),
            unit=np.array(self._unit, dtype=np.int64),
            samples=np.array(self._samples, dtype=np.int64),
            payload=np.array(self._payload, dtype=np.int64),
            grade=np.array(self._grade, dtype=np.uint8),
            medium_bytes={"": medium_bytes} if medium_bytes else {},
            large_bytes={"": large_bytes} if large_bytes else {},
            dropped=dropped,
        )

    def _cut(self, *, last: bool) -> None:
        """Cut what waits into blocks; the unfinished one stays unless `last`."""
        if not self._pieces:
            return
        starts, ends, samples, payload = (np.concatenate(columns) for columns in zip(*self._pieces, strict=True))
        sums = np.concatenate(([0], np.cumsum(samples)))
        payload_sums = np.concatenate(([0], np.cumsum(payload)))
        count = len(starts)
        first = 0
        while first < count:
            by_samples = int(np.searchsorted(sums, sums[first] + self._limits.samples, side="right")) - 1
            by_bytes = int(np.searchsorted(ends, starts[first] + self._limits.bytes, side="right"))
            stop = max(first + 1, min(by_samples, by_bytes))
            if stop >= count and not last:
                break
            offset = int(starts[first])
            size = int(ends[stop - 1]) - offset
            held = int(payload_sums[stop] - payload_sums[first])
            self._blocks.append((offset, size, int(sums[stop] - sums[first]), held))
            first = stop
        self._pieces = [(starts[first:], ends[first:], samples[first:], payload[first:])] if first < count else []
