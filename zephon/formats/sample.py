"""What a reader gives: the samples of a block, and what it was told about reading them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from zephon.config import Spill


class Sample(msgspec.Struct, gc=False):
    """A record of a shard.

    key     name in its shard: the members' basename (tar), else the sample's number there
    fields  tar: extension -> bytes; JSONL: the object's fields; Parquet: column -> value
    error   what is wrong with its bytes, in words that depend on these alone; None: nothing
    """

    key: str
    fields: dict[str, Any]
    error: str | None = None


# The name of a field that is read; or names of several, of which those are read that the shard has: at least one.
Column = str | tuple[str, ...]


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """How blocks are read: which columns (None: all), where large units are decoded to, and names for errors.

    `settings` tells which setting of the source's stage names a column.
    """

    columns: tuple[Column, ...] | None = None
    spill: Spill = Spill()
    index_dir: str | None = None
    source: str = "<name>"
    settings: Mapping[str, str] = {}


def column_names(column: Column) -> tuple[str, ...]:
    """Return the names that a column may have."""
    return (column,) if isinstance(column, str) else column
