"""What a reader gives: the samples of a block, and what it was told about reading them."""

from __future__ import annotations

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


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """How blocks are read: which columns, where large units are decoded to, and the source's name for errors."""

    columns: tuple[str, ...] | None = None
    spill: Spill = Spill()
    index_dir: str | None = None
    source: str = "<name>"
