"""Reading samples of a block: what a worker does first with an order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from zephon.config import Spill
from zephon.formats.index import format_named
from zephon.formats.protocol import Format
from zephon.formats.sample import Column, Reading, Sample
from zephon.page import Location
from zephon.stores.select import store_for

__all__ = ["Sample", "read_samples"]


def read_samples(
    location: Location,
    samples: Sequence[int],
    *,
    columns: Sequence[Column] | None,
    spill: Spill,
    index_dir: str | None,
    source: str = "<name>",
    settings: Mapping[str, str] | None = None,
) -> tuple[list[Sample], int]:
    """Return some samples of a block, in the order asked for, and the block's raw hash.

    The hash is the XXH3-64 of the block's bytes (tar, JSONL) or of its rows' values in the columns
    (Parquet), whichever samples are asked for. `columns` are those needed, None for all; of several
    names in one, those that the shard's schema has. Raises StoreError where the shard can't be read,
    DataError where it is damaged, lacks a column, or isn't what was indexed. Such an error names
    `source`, and the setting of its stage that `settings` has for the column.
    """
    reading = Reading(
        columns=None if columns is None else tuple(columns),
        spill=spill,
        index_dir=index_dir,
        source=source,
        settings=settings or {},
    )
    return _format(location.format).read(store_for(location.path), location, samples, reading)


# Formats have no state: a cache of a pure function.
_format: Callable[[str], Format] = lru_cache(maxsize=64)(format_named)
