"""The index of a shard, kept in a small file beside it or in a cache folder.

The file is `MAGIC`, the XXH3-64 of what follows (8 bytes), then a zstd frame of msgpack. It is written
whole or not at all. One that is damaged, or was made of another shard, with other limits or by another
version, counts as absent.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

import msgspec
import numpy as np
import zstandard
from xxhash import xxh3_64_digest

from zephon.formats.blocks import BlockTable, Limits
from zephon.formats.folders import user_cache
from zephon.formats.lock import locked
from zephon.stores.protocol import Stat

SUFFIX = ".zephon-index"
# Raised whenever the rule that cuts shards into blocks, or what is kept of them, changes.
VERSION = 2
MAGIC = b"zephidx\n"
_COLUMNS = ("offset", "size", "unit", "samples", "payload")


class _Record(msgspec.Struct, frozen=True):
    """What the file holds: what the table was made of, and the table."""

    version: int
    format: str
    shard: tuple[int, int]
    limits: Limits
    columns: dict[str, bytes]
    grade: bytes
    medium_bytes: dict[str, int]
    large_bytes: dict[str, int]
    dropped: int


def cache_files(path: str, index_dir: str | None) -> list[Path]:
    """Return where a shard's index may be kept, best first: `index_dir` alone, else beside it or the user's cache."""
    name = Path(path).name + SUFFIX
    digest = blake2b(str(Path(path).absolute()).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    if index_dir is not None:
        return [Path(index_dir) / f"{digest}-{name}"]
    folder = user_cache()
    others = [] if folder is None else [folder / "index" / f"{digest}-{name}"]
    return [Path(path + SUFFIX), *others]


def load_table(files: list[Path], stat: Stat, format_: str, limits: Limits) -> BlockTable | None:
    """Return the first table kept in `files` that was made of this shard, format and limits; None if none was."""
    for file in files:
        try:
            table = _parse(file.read_bytes(), stat, format_, limits)
        except (OSError, msgspec.MsgspecError, zstandard.ZstdError, ValueError, UnicodeDecodeError):
            continue
        if table is not None:
            return table
    return None


def keep_table(files: list[Path], table: BlockTable, stat: Stat, format_: str, limits: Limits) -> None:
    """Write a table to the first of `files` that can be written; to none if none can: it only saves time."""
    record = _Record(
        version=VERSION,
        format=format_,
        shard=(stat.size, stat.mtime_ns),
        limits=limits,
        columns={name: getattr(table, name).astype("<i8").tobytes() for name in _COLUMNS},
        grade=table.grade.tobytes(),
        medium_bytes=table.medium_bytes,
        large_bytes=table.large_bytes,
        dropped=table.dropped,
    )
    body = zstandard.ZstdCompressor(level=3).compress(msgspec.msgpack.encode(record))
    for file in files:
        try:
            _write(file, MAGIC + xxh3_64_digest(body) + body)
        except OSError:
            continue
        return


@contextmanager
def building(files: list[Path]) -> Iterator[None]:
    """Let one builder at a time work on a shard, where a lock can be had; only to save work, never for safety."""
    for file in files:
        lock = locked(file.with_name(f".{file.name}.lock"))
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            lock.__enter__()
        except OSError:
            continue
        try:
            yield
        finally:
            lock.__exit__(None, None, None)
        return
    yield


def _parse(raw: bytes, stat: Stat, format_: str, limits: Limits) -> BlockTable | None:
    head = len(MAGIC)
    body = raw[head + 8 :]
    if raw[:head] != MAGIC or raw[head : head + 8] != xxh3_64_digest(body):
        return None
    record = msgspec.msgpack.decode(zstandard.ZstdDecompressor().decompress(body), type=_Record)
    if (record.version, record.format, record.shard, record.limits) != (VERSION, format_, tuple(stat), limits):
        return None
    columns = {name: np.frombuffer(record.columns[name], dtype="<i8").astype(np.int64) for name in _COLUMNS}
    return BlockTable(
        **columns,
        grade=np.frombuffer(record.grade, dtype=np.uint8),
        medium_bytes=record.medium_bytes,
        large_bytes=record.large_bytes,
        dropped=record.dropped,
    )


def _write(file: Path, raw: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    # Named by who writes, so that builders on several machines never share a temporary file.
    writer = f"{os.uname().nodename}-{os.getpid()}-{threading.get_ident()}"
    temporary = file.with_name(f".{file.name}.{writer}.tmp")
    try:
        with temporary.open("wb") as out:
            out.write(raw)
            out.flush()
            os.fsync(out.fileno())
        temporary.rename(file)
    finally:
        temporary.unlink(missing_ok=True)
