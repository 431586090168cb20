"""Rewriting shards so that every block can be read by itself: what `zephon pack` does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from zephon.errors import ConfigError, StoreError
from zephon.formats.expand import expand
from zephon.formats.index import format_named
from zephon.formats.jsonl import stream_lines
from zephon.formats.names import format_of
from zephon.formats.pack_jsonl import JsonlShards, json_line
from zephon.formats.pack_tar import TarShards
from zephon.progress import bar
from zephon.stores.select import store_for

SHARD_BYTES = 256 << 20


def pack(
    paths: str | Sequence[str],
    out_dir: str | Path,
    *,
    format: Literal["auto", "tar", "jsonl.zst"] = "auto",  # noqa: A002 - the name that users give on the command line
    shard_bytes: int = SHARD_BYTES,
    progress: bool = False,
) -> list[str]:
    """Rewrite all samples, in order, to shards of about `shard_bytes`; return the new shards' paths.

    `tar` gives plain tar, a member per field; `jsonl.zst` gives JSON lines with a zstd frame a block;
    `auto` keeps tar as tar and makes everything else JSONL. Lines of JSONL stay as they are, byte for
    byte, if they stay JSONL. Memory is bounded whatever the shards; no spill is used. Raises ConfigError
    where `out_dir` holds such shards already, StoreError, and DataError for samples that the format
    can't hold.
    """
    shards = expand(paths if isinstance(paths, str) else list(paths), place="pack")
    kinds = [format_of(shard, "auto", place="sources.<name>") for shard in shards]
    if format == "auto":
        format = "tar" if all(kind == "tar" for kind in kinds) else "jsonl.zst"  # noqa: A001
    if format not in ("tar", "jsonl.zst"):
        raise ConfigError(f"pack: no format {format!r} to write; known: tar, jsonl.zst")
    folder = _empty_folder(Path(out_dir), format)
    try:
        with bar("packing", len(shards), shown=progress) as advance:
            if format == "tar":
                return _write_tars(shards, kinds, TarShards(folder, shard_bytes), advance)
            return _write_lines(shards, kinds, JsonlShards(folder, shard_bytes), advance)
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror or error}; check the folder and its disk's room") from error


def _write_tars(shards: list[str], kinds: list[str], tars: TarShards, advance: Callable[[], None]) -> list[str]:
    with tars:
        for number, (shard, kind) in enumerate(zip(shards, kinds, strict=True)):
            for index, sample in enumerate(format_named(kind).stream(store_for(shard), shard)):
                # Names of tar samples stay; others get one without dots, in order.
                tars.add(sample, sample.key if kind == "tar" else f"{number:06d}-{index:09d}", shard=shard)
            advance()
    return tars.written


def _write_lines(shards: list[str], kinds: list[str], lines: JsonlShards, advance: Callable[[], None]) -> list[str]:
    with lines:
        for shard, kind in zip(shards, kinds, strict=True):
            for line in _lines(shard, kind):
                lines.add(line)
            advance()
    return lines.written


def _lines(shard: str, kind: str) -> Iterator[bytes]:
    if kind == "jsonl":
        return stream_lines(store_for(shard), shard)
    return (
        json_line(sample, shard=shard, named=kind == "tar")
        for sample in format_named(kind).stream(store_for(shard), shard)
    )


def _empty_folder(folder: Path, suffix: str) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        there = sorted(folder.glob(f"shard-*.{suffix}"))
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror or error}; give a folder that can be written") from error
    if there:
        raise ConfigError(f"pack: {there[0]} exists already; give an empty folder, or remove the shards in it")
    return folder
