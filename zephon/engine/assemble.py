"""From planned rows to host micro-batches and digests."""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from zephon.collate.host import IMAGE_COLUMNS, HostBatch, HostImages
from zephon.engine.attached import attachments_of, digest_part
from zephon.engine.materialise import Decoded
from zephon.errors import DataError, StateError
from zephon.item import Row
from zephon.lanes.state import DIGEST_BYTES
from zephon.native import compiled
from zephon.page import GRID_H, GRID_T, GRID_W, PATCHES, TOKENS

LITTLE = sys.byteorder == "little"
PIECE_BYTES = 8
native = compiled("rows")


class Assembler:
    """Fills a micro-batch's arrays row by row; `finish` gives the batch.

    `tokens`, `documents` and `delivered` count what its rows hold; a document counts where it begins.
    """

    def __init__(self, rows: int, capacity: int, pad_id: int, *, images: bool = False) -> None:
        self._tokens: NDArray[np.int32] = np.empty((rows, capacity), np.int32)
        self._pad_id = pad_id
        self._mask: NDArray[np.uint8] | None = None
        # (offset, tokens) of each row's pieces, int32.
        self._layouts: list[bytes] = []
        self._sequences: list[int] = []
        self.tokens = self.documents = 0
        self.delivered: Counter[str] = Counter()
        self._has_images = images
        self._pixels: list[NDArray[np.uint8]] = []
        self._images: list[tuple[int, ...]] = []

    def add(self, sequence: int, row: Any) -> bytes | None:
        """Fill the next row and return its digest of 8 bytes; a row that wasn't planned stays masked, without one."""
        place = len(self._sequences)
        self._sequences.append(sequence)
        tokens = self._tokens[place]
        if row is None:
            tokens.fill(self._pad_id)
            self._layouts.append(b"")
            return None
        write = write_row if isinstance(row, Row) else type(row).write
        layout, total, documents, masked = write(row, tokens, self._pad_id, self.delivered)
        self._layouts.append(layout)
        self.tokens += total
        self.documents += documents
        mask = self._fill_mask(place, row) if masked or self._mask is not None else None
        images = digest_part(attachments_of(row)) if self._has_images else b""
        return row_digest(tokens, layout, mask if masked else None, images)

    def attach(self, decoded: Sequence[Decoded]) -> None:
        """Add the images of the row added last; a document with a broken one isn't learned from."""
        row = len(self._sequences) - 1
        for placed, pixels, broken in decoded:
            c = placed.columns
            grid = (c[GRID_T], c[GRID_H], c[GRID_W])
            self._pixels.append(pixels)
            self._images.append((row, placed.offset, c[TOKENS], *grid, c[PATCHES], int(broken)))
            if broken and self._mask is not None:
                self._mask[row, placed.start : placed.stop] = 0

    def finish(self) -> HostBatch:
        """Return the batch."""
        pieces = piece_table(self._layouts)
        images = None
        if self._has_images:
            table = np.array(self._images, np.int64).reshape(-1, IMAGE_COLUMNS)
            images = HostImages(pixels=tuple(self._pixels), table=table)
        return HostBatch(
            tokens=self._tokens, pieces=pieces, mask=self._mask, sequences=tuple(self._sequences), images=images
        )

    def _fill_mask(self, place: int, row: Any) -> NDArray[np.uint8]:
        """Fill and return a row's mask; rows before the first that has one predict all their tokens."""
        if self._mask is None:
            self._mask = np.zeros(self._tokens.shape, np.uint8)
            self._mask[:place] = 1
        mask: NDArray[np.uint8] = self._mask[place]
        write = write_mask if isinstance(row, Row) else type(row).write_mask
        write(row, mask)
        return mask


def piece_table(layouts: list[bytes]) -> NDArray[np.int32]:
    """Return HostBatch.pieces of rows whose (offset, tokens) of pieces are given as int32."""
    counts = [len(layout) // PIECE_BYTES for layout in layouts]
    pieces = np.empty((sum(counts), 3), np.int32)
    if native is not None:
        native.fill_pieces(layouts, pieces)
    else:
        pieces[:, 0] = np.repeat(np.arange(len(layouts)), counts)
        pieces[:, 1:] = np.frombuffer(b"".join(layouts), np.int32).reshape(-1, 2)
    return pieces


def write_row(row: Row, out: NDArray[np.int32], pad: int, delivered: dict[str, int]) -> tuple[bytes, int, int, bool]:
    """Write a row's tokens and its padding; add each source's tokens to `delivered`.

    Returns (int32 offset and size of each piece as bytes, tokens, documents begun, whether any has a mask), as a
    compiled row's `write` does. Raises StateError where tokens aren't in memory, DataError where pieces don't lie as a
    row's must.
    """
    end = documents = total = 0
    layout: list[int] = []
    masked = False
    for item, start, stop, offset in row.spans:
        payload = item.payload
        if payload is None or payload.tokens is None:
            raise StateError(f"source {item.source}, block {item.q} (global): tokens of sample {item.sample} are gone")
        size = stop - start
        first = item.place + start
        if offset < end or size < 1 or start < 0 or stop > item.length or offset + size > len(out):
            raise DataError(
                f"the packer put tokens {start} to {stop} of {item.length} at {offset} of a row of {len(out)} that is "
                f"full up to {end}; pieces must lie behind each other and inside of their document and row"
            )
        if offset > end:
            out[end:offset] = pad
        end = offset + size
        out[offset:end] = payload.tokens[first : first + size]
        layout += (offset, size)
        delivered[item.source] += size
        total += size
        if not start:
            documents += 1
        if payload.mask is not None:
            masked = True
    out[end:] = pad
    return array("i", layout).tobytes(), total, documents, masked


def write_mask(row: Row, out: NDArray[np.uint8]) -> None:
    """Write the mask of each piece, ones for those without; what lies between is left as it is."""
    for item, start, stop, offset in row.spans:
        own = None if item.payload is None else item.payload.mask
        first, size = item.place + start, stop - start
        out[offset : offset + size] = 1 if own is None else own[first : first + size]


def row_digest(tokens: NDArray[np.int32], layout: bytes, mask: NDArray[np.uint8] | None, images: bytes = b"") -> bytes:
    """Return XXH3-64, little-endian, over a row's tokens, its pieces' (offset, tokens) int32, its mask and its images.

    See docs/stream.md, "Rows, loss, digest".
    """
    digest = xxhash.xxh3_64(tokens.data if LITTLE else tokens.astype("<i4").data)
    digest.update(layout if LITTLE else np.frombuffer(layout, np.int32).astype("<i4").tobytes())
    if mask is not None:
        digest.update(mask.data)
    if images:
        digest.update(images)
    # The canonical form is big-endian.
    return bytes(digest.digest()[::-1])


def chain(lane_digest: bytes, digest: bytes) -> bytes:
    """Return a lane's digest after one more row."""
    return blake2b(lane_digest + digest, digest_size=DIGEST_BYTES).digest()
