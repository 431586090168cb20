"""Walking a large tar in several places at once, where a `.tar.idx` says at which bytes samples begin.

The index is only a hint where to start: each part must end exactly where the next begins, else the tar
is walked from its start. So the result is that of the plain walk, whatever the hint says.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from zephon.errors import DataError, StoreError
from zephon.formats.tar_walk import Member, Window, walk
from zephon.stores.protocol import Store

PART_BYTES = 64 << 20
MAX_PARTS = 8


def walk_in_parts(store: Store, path: str, size: int, *, part_bytes: int = PART_BYTES) -> Iterator[Member]:
    """Yield what walk() yields over the whole shard."""
    bounds = _bounds(store, path, size, part_bytes)
    if len(bounds) > 2:
        with ThreadPoolExecutor(len(bounds) - 1) as pool:
            parts = list(pool.map(lambda ends: _part(store, path, ends[0], ends[1], size), pairwise(bounds)))
        whole = [part for part in parts if part is not None]
        if len(whole) == len(parts):
            for part in whole:
                yield from part
            return
    yield from walk(Window(store, path, size), 0, size)


def _bounds(store: Store, path: str, size: int, part_bytes: int) -> list[int]:
    """Return where parts begin and end: sample starts near equal parts of the shard, or just [0, size]."""
    count = min(MAX_PARTS, size // part_bytes)
    if count < 2:
        return [0, size]
    try:
        hint = f"{path}.idx"
        raw = store.read(hint, 0, store.size(hint) & -8)
    except (StoreError, DataError):
        return [0, size]
    offsets = np.frombuffer(raw, dtype="<i8")
    if not len(offsets) or offsets[0] < 0 or offsets[-1] > size or np.any(np.diff(offsets) < 0):
        return [0, size]
    nearest = np.searchsorted(offsets, [size * number // count for number in range(1, count)])
    inner = {int(offset) for offset in offsets[nearest[nearest < len(offsets)]]}
    return [0, *sorted(offset for offset in inner if 0 < offset < size and offset % 512 == 0), size]


def _part(store: Store, path: str, start: int, stop: int, size: int) -> list[Member] | None:
    """Return the members of a part, or None where it doesn't end exactly at `stop`."""
    members: list[Member] = []
    try:
        for member in walk(Window(store, path, size), start, size):
            if member[0] >= stop:
                return members if member[0] == stop else None
            members.append(member)
    except DataError:
        return None
    # The archive ends here: right only for the last part.
    return members if stop == size else None
