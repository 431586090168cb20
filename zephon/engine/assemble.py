"""From planned rows to host micro-batches and digests."""

from __future__ import annotations

import struct
from hashlib import blake2b

import numpy as np
import xxhash
from numpy.typing import NDArray

from zephon.collate.host import HostBatch
from zephon.errors import StateError
from zephon.item import Row
from zephon.lanes.state import DIGEST_BYTES


class Assembler:
    """Fills a micro-batch's arrays row by row; `finish` gives the batch."""

    def __init__(self, rows: int, capacity: int, pad_id: int) -> None:
        self._tokens: NDArray[np.int32] = np.full((rows, capacity), pad_id, np.int32)
        self._mask: NDArray[np.uint8] | None = None
        self._pieces: list[tuple[int, int, int]] = []
        self._sequences: list[int] = []

    def add(self, sequence: int, row: Row | None) -> bytes | None:
        """Fill the next row and return its digest of 8 bytes; a row that wasn't planned stays masked, without one."""
        place = len(self._sequences)
        self._sequences.append(sequence)
        if row is None:
            return None
        if self._mask is None and has_mask(row):
            self._mask = np.zeros(self._tokens.shape, np.uint8)
            for done, offset, tokens in self._pieces:
                self._mask[done, offset : offset + tokens] = 1
        mask = None if self._mask is None else self._mask[place]
        pieces = fill(row, self._tokens[place], mask)
        self._pieces += [(place, offset, tokens) for offset, tokens in pieces]
        return row_digest(self._tokens[place], pieces, mask if has_mask(row) else None)

    def finish(self) -> HostBatch:
        """Return the batch."""
        pieces = np.array(self._pieces, np.int32) if self._pieces else np.empty((0, 3), np.int32)
        return HostBatch(tokens=self._tokens, pieces=pieces, mask=self._mask, sequences=tuple(self._sequences))


def has_mask(row: Row) -> bool:
    """Return whether any document of a row says which of its tokens are to be predicted."""
    return any(span.item.payload is not None and span.item.payload.mask is not None for span in row.spans)


def fill(row: Row, tokens: NDArray[np.int32], mask: NDArray[np.uint8] | None) -> list[tuple[int, int]]:
    """Copy a row's documents into `tokens` [C] and `mask` [C]; return (offset, tokens) of its pieces."""
    pieces = []
    for item, start, stop, offset in row.spans:
        payload = item.payload
        if payload is None or payload.tokens is None:
            raise StateError(
                f"source {item.source}, block {item.q} (global), sample {item.sample}: its tokens are missing"
            )
        size = stop - start
        tokens[offset : offset + size] = payload.tokens[start:stop]
        if mask is not None:
            mask[offset : offset + size] = 1 if payload.mask is None else payload.mask[start:stop]
        pieces.append((offset, size))
    return pieces


def row_digest(tokens: NDArray[np.int32], pieces: list[tuple[int, int]], mask: NDArray[np.uint8] | None) -> bytes:
    """Return XXH3-64, little-endian, over a row's tokens, its pieces and its mask; see docs/stream.md."""
    digest = xxhash.xxh3_64(np.ascontiguousarray(tokens, "<i4").data)
    digest.update(struct.pack(f"<{2 * len(pieces)}i", *[number for piece in pieces for number in piece]))
    if mask is not None:
        digest.update(mask.data)
    return int(digest.intdigest()).to_bytes(8, "little")


def chain(lane_digest: bytes, digest: bytes) -> bytes:
    """Return a lane's digest after one more row."""
    return blake2b(lane_digest + digest, digest_size=DIGEST_BYTES).digest()
