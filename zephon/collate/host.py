"""A micro-batch on the host, and what the device needs to know of its pieces: NumPy only, no torch."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

# From so many tokens on, NumPy lists a padding's inputs quicker than Python.
LONG_PADDING = 64
# Columns of HostImages.table.
IMAGE_ROW, IMAGE_OFFSET, IMAGE_TOKENS, IMAGE_GRID, IMAGE_PATCHES, IMAGE_BROKEN = 0, 1, 2, slice(3, 6), 6, 7
IMAGE_COLUMNS = 8


class HostImages(msgspec.Struct, frozen=True, kw_only=True):
    """The images of a micro-batch, in the order of their tokens.

    pixels  uint8 [frames, height, width, 3] each
    table   int64 [n, 8]: row, offset of the first token, tokens, grid of patches (time, height, width), patches,
            and 1 where the bytes gave no picture
    """

    pixels: tuple[NDArray[np.uint8], ...]
    table: NDArray[np.int64]


class HostBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Rows as the engine assembled them.

    tokens     int32 [b, S + 1]; the pad token where no piece lies
    pieces     int32 [P, 3]: (row, offset, tokens) of each piece, by row and then by offset
    mask       uint8 [b, S + 1]: 1 where a document's own mask wants the token predicted; None: everywhere
    sequences  each row's number in the stream
    images     None: no source has any
    """

    tokens: NDArray[np.int32]
    pieces: NDArray[np.int32]
    mask: NDArray[np.uint8] | None
    sequences: tuple[int, ...]
    images: HostImages | None = None


class Layout(NamedTuple):
    """Where segments start and losses don't count in a micro-batch, flattened to b * S inputs.

    cu_seqlens  int32 [K + 1]: segment starts, then b * S
    starts      int64 [K]: the same without its end
    gains       int64 [K]: what a running position gains at each start to be 0 there
    unpredicted int64 [Z]: inputs whose label doesn't count, each once, in no order
    max_seqlen  tokens of the longest segment
    """

    cu_seqlens: NDArray[np.int32]
    starts: NDArray[np.int64]
    gains: NDArray[np.int64]
    unpredicted: NDArray[np.int64]
    max_seqlen: int


def layout(pieces: NDArray[np.int32], rows: int, length: int, *, mask_boundary: bool, align: int) -> Layout:
    """Return the segments and the inputs without a loss of `rows` rows of `length` inputs, by docs/stream.md.

    Every row start is a segment start. The gap that rounds a piece up to `align` belongs to that piece; the
    padding from there on is a segment of its own. Plain Python: quicker than NumPy below some 100 pieces.
    """
    total = rows * length
    bounds = [*range(0, total, length)]
    unpredicted: list[int] = []
    # Where each row's last piece ended; 0 in a row without pieces.
    ends = [0] * rows
    for row, offset, tokens in zip(*pieces.T.tolist(), strict=True):
        # The label of the token at offset i stands at input i - 1; the one at offset 0 is nobody's label.
        if offset:
            base, end = row * length, ends[row]
            if offset < length:
                bounds.append(base + offset)
            if offset > end:
                unpredicted.extend(range(base + max(end - 1, 0), base + offset))
            elif mask_boundary:
                unpredicted.append(base + offset - 1)
        ends[row] = offset + tokens
    paddings: list[NDArray[np.int64]] = []
    base = 0
    for end in ends:
        padding = end + -end % align
        if 0 < padding < length:
            bounds.append(base + padding)
        first = base + end - 1 if end else base
        base += length
        if base - first > LONG_PADDING:
            paddings.append(np.arange(first, base))
        else:
            unpredicted.extend(range(first, base))
    bounds.sort()
    num = len(bounds)
    bounds.append(total)
    gains = [start - stop + 1 for start, stop in pairwise(bounds)]
    # One array, because each costs about a microsecond to make; the last gain, at the end, is nobody's.
    packed = np.array(bounds + gains + unpredicted, np.int64)
    cu_seqlens = packed[: num + 1].astype(np.int32)
    # From here on the end's place holds the gain of the first start.
    packed[num] = 0
    tail = packed[2 * num + 1 :]
    return Layout(
        cu_seqlens,
        packed[:num],
        packed[num : 2 * num],
        np.concatenate((tail, *paddings)) if paddings else tail,
        1 - min(gains),
    )
