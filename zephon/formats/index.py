"""Indexing a source: the block tables of its shards, from the cache or made now."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from zephon.config import Source
from zephon.errors import DataError
from zephon.formats.blocks import BlockTable, Limits, OnTruncated
from zephon.formats.expand import expand
from zephon.formats.index_cache import building, cache_files, keep_table, load_table
from zephon.formats.names import format_of
from zephon.formats.protocol import Format
from zephon.formats.source_index import SourceIndex
from zephon.progress import bar
from zephon.registry import FORMATS, resolve
from zephon.stores.select import store_for

__all__ = ["SourceIndex", "build_index", "format_named", "index_shard"]

MAX_THREADS = 8


def build_index(
    name: str,
    source: Source,
    *,
    index_dir: str | None,
    on_truncated: OnTruncated = "raise",
    progress: bool = False,
) -> SourceIndex:
    """Return the index of a source, indexing those of its shards whose index isn't kept yet.

    The result is a pure function of the shards' bytes and the source's block limits. `index_dir` is the
    only place of kept indexes if given; else they are beside the shards, or in the user's cache. With
    `on_truncated="skip"` the whole samples of truncated tar shards are used. Raises StoreError,
    DataError, ConfigError; the error is that of the first shard that has one.
    """
    place = f"sources.{name}"
    shards = expand(source.path, place=f"{place}.path")
    formats = [format_of(shard, source.format, place=place) for shard in shards]
    for kind in dict.fromkeys(formats):
        format_named(kind, place=f"{place}.format")
    limits = Limits(source.block_samples, source.block_bytes)
    tables: list[BlockTable] = []
    # Reading and decompressing release the interpreter lock; walking headers doesn't.
    pool = ThreadPoolExecutor(max(1, min(MAX_THREADS, os.cpu_count() or 1, len(shards))))
    try:
        with bar(f"indexing {name}", len(shards), shown=progress) as advance:
            jobs = [
                pool.submit(index_shard, shard, kind, limits, index_dir=index_dir, on_truncated=on_truncated)
                for shard, kind in zip(shards, formats, strict=True)
            ]
            for job in jobs:
                tables.append(job.result())
                advance()
    finally:
        pool.shutdown(cancel_futures=True)
    return SourceIndex(name, shards, formats, tables)


def index_shard(
    path: str, kind: str, limits: Limits, *, index_dir: str | None, on_truncated: OnTruncated = "raise"
) -> BlockTable:
    """Return the block table of one shard, kept from before or made now and kept."""
    store = store_for(path)
    files = cache_files(path, index_dir)
    kept = _usable(load_table(files, store.stat(path), kind, limits), on_truncated)
    if kept is not None:
        return kept
    with building(files):
        stat = store.stat(path)
        kept = _usable(load_table(files, stat, kind, limits), on_truncated)
        if kept is not None:
            return kept
        table = format_named(kind).index(store, path, stat.size, limits, on_truncated=on_truncated)
        if store.stat(path) != stat:
            raise DataError(f"{path}: changed while it was indexed; start again when it is written")
        keep_table(files, table, stat, kind, limits)
    return table


def format_named(kind: str, *, place: str = "format") -> Format:
    """Return the format of a kind; ConfigError, listing the known ones, for any other."""
    made: Format = resolve(FORMATS, kind, place=place)()
    return made


def _usable(table: BlockTable | None, on_truncated: OnTruncated) -> BlockTable | None:
    # A table that lacks the end of a truncated shard must not hide it from who asked to be told.
    return None if table is not None and table.dropped and on_truncated == "raise" else table
