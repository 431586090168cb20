"""What moves between planner and workers: an order for samples of one block, and the page that answers it."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray


class Location(msgspec.Struct, frozen=True):
    """Where a block lies: all that a reader needs, so that workers hold no index.

    `offset` and `size` are bytes of the shard (of the decoded unit where one must be decoded first), or
    first row in the row group and number of rows for Parquet. `unit` is the restart unit: the row
    group, the offset of the zstd frame, 0 for a whole stream, -1 where nothing has to be decoded.
    `first` is the number in its shard of the block's first sample and `samples` how many it has.
    A `large` unit is decoded once, into the spill, and so is a `medium` one unless the spill can't be written.
    """

    path: str
    format: str
    offset: int
    size: int
    unit: int
    first: int
    samples: int
    large: bool = False
    medium: bool = False


# The columns of a page's attachments.
PLACE, TOKENS, NUMBER, FRAMES, HEIGHT, WIDTH, GRID_T, GRID_H, GRID_W, PATCHES, HASH = range(11)
COLUMNS = 11


class Wanted(msgspec.Struct, frozen=True, array_like=True):
    """An attachment that is to be decoded: `number` of a sample, as uint8 [frames, height, width, 3]."""

    sample: int
    number: int
    frames: int
    height: int
    width: int


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request for some samples of a block, in the order given (numbers within the block).

    Where attachments are `wanted`, the samples are those that these belong to, and the page holds their pixels
    in place of documents: that is an order to materialise.
    """

    source: str
    epoch: int
    block: int
    location: Location
    samples: tuple[int, ...]
    wanted: tuple[Wanted, ...] = ()


class Page(msgspec.Struct):
    """The documents of an order's samples, columnar.

    tokens      uint32 [T]      all documents' tokens, one after another
    offsets     int64 [D + 1]   document d is tokens[offsets[d]:offsets[d + 1]]; none is empty
    counts      int32 [N]       documents of each of the order's N samples
    mask        uint8 [T]       1 where the token is to be predicted; None: everywhere
    meta        int64 [D, M]    the source's declared metadata; None: M = 0
    bad         (i, message)    samples that are not what the stage needs; they have no documents
    block_hash  XXH3-64 of the block's raw bytes (of the decoded rows for Parquet)
    seconds     what making the page took, for who sizes the next ones
    attachments int64 [A, 11]   what is decoded only for a planned row, in increasing place; None: A = 0
    pixels      what was wanted, decoded: uint8 [frames, height, width, 3] each; `bad` counts them; None: nothing was

    An attachment's columns are the place of its first token in `tokens`, its tokens, its number in its sample,
    frames, height and width of its pixels, its grid of patches (time, height, width), its patches, and the
    XXH3-64 of its compressed bytes.
    """

    tokens: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    counts: NDArray[np.int32]
    mask: NDArray[np.uint8] | None
    meta: NDArray[np.int64] | None
    bad: tuple[tuple[int, str], ...]
    block_hash: int
    seconds: float = 0.0
    attachments: NDArray[np.int64] | None = None
    pixels: tuple[NDArray[np.uint8], ...] | None = None


def page_of_pixels(
    pixels: tuple[NDArray[np.uint8], ...], *, bad: tuple[tuple[int, str], ...], block_hash: int, seconds: float = 0.0
) -> Page:
    """Return a page that holds attachments' pixels and no documents."""
    return Page(
        tokens=np.zeros(0, np.uint32),
        offsets=np.zeros(1, np.int64),
        counts=np.zeros(0, np.int32),
        mask=None,
        meta=None,
        bad=bad,
        block_hash=block_hash,
        seconds=seconds,
        pixels=pixels,
    )
