"""The attachments of a planned row: which they are, where they lie in it, and their part of its digest."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from zephon.errors import DataError
from zephon.item import Item, Row
from zephon.page import FRAMES, GRID_H, GRID_T, GRID_W, HASH, HEIGHT, PLACE, TOKENS, WIDTH


class Placed(NamedTuple):
    """An attachment of a row: its item, Page's columns, and where in the row its tokens and its document's lie."""

    item: Item
    columns: tuple[int, ...]
    offset: int
    start: int
    stop: int


def attachments_of(row: Row | None) -> list[Placed]:
    """Return a row's attachments, in the order of their tokens; its documents must be in memory.

    Raises DataError where a piece has some of an attachment's tokens and not all.
    """
    found: list[Placed] = []
    for item, start, stop, offset in () if row is None else row.spans:
        table = None if item.payload is None else item.payload.attachments
        if table is None or not len(table):
            continue
        first, last = item.place + start, item.place + stop
        low, high = np.searchsorted(table[:, PLACE], (first, last)).tolist()
        # One that began before this piece would reach into it.
        if low and table[low - 1, PLACE] + table[low - 1, TOKENS] > first and table[low - 1, PLACE] >= item.place:
            raise _cut(item)
        for columns in table[low:high].tolist():
            if columns[PLACE] + columns[TOKENS] > last:
                raise _cut(item)
            found.append(Placed(item, tuple(columns), offset + columns[PLACE] - first, offset, offset + stop - start))
    return found


def digest_part(placed: Sequence[Placed]) -> bytes:
    """Return what a row's digest covers of its attachments: where they lie, what they become, and their bytes' hash."""
    parts = []
    for each in placed:
        c = each.columns
        shape = (c[FRAMES], c[HEIGHT], c[WIDTH], c[GRID_T], c[GRID_H], c[GRID_W])
        parts.append(struct.pack("<8iq", each.offset, c[TOKENS], *shape, c[HASH]))
    return b"".join(parts)


def _cut(item: Item) -> DataError:
    return DataError(
        f"source {item.source}, block {item.q} (global), sample {item.sample}: an image was cut by the packer; "
        "use one that keeps documents whole, such as best_fit"
    )
