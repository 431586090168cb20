"""The spill: large restart units, decoded once into files that are addressable by block."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from zephon.config import Spill
from zephon.errors import ConfigError, StoreError
from zephon.formats.folders import cache_folder
from zephon.formats.lock import locked
from zephon.formats.sample import Reading
from zephon.formats.source_index import SourceIndex
from zephon.stores.protocol import Stat

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

SUFFIX = ".unit"


def spill_folder(spill: Spill, index_dir: str | None) -> Path:
    """Return the spill's folder; ConfigError where none can be told."""
    if spill.dir is not None:
        return Path(spill.dir)
    folder = cache_folder(index_dir)
    if folder is None:
        raise ConfigError("spill.dir is unset and there is no home folder; set spill.dir or index_dir")
    return folder / "spill"


def unit_name(path: str, stat: Stat, unit: int, columns: tuple[str, ...] | None) -> str:
    """Return the file name of a decoded unit: a digest of the shard's identity, the unit and the columns."""
    digest = blake2b(digest_size=16)
    for part in (str(Path(path).absolute()), str(stat.size), str(stat.mtime_ns), str(unit), *(columns or ("*",))):
        text = part.encode("utf-8", "surrogateescape")
        digest.update(len(text).to_bytes(4, "little") + text)
    return digest.hexdigest() + SUFFIX


def spilled(name: str, write: Callable[[BinaryIO], None], reading: Reading, *, shard: str) -> str:
    """Return the path of a decoded unit's file, made by `write` where it isn't there yet.

    It is decoded once, whoever asks: others wait for the lock. The file is whole or absent. Units used
    longest ago go where the folder would exceed `spill.max_bytes`; a unit that exceeds it alone is a
    ConfigError.
    """
    spill = reading.spill
    folder = spill_folder(spill, reading.index_dir)
    target = folder / name
    try:
        if _touch(target):
            return str(target)
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / f"{name}.lock"):
            if not _touch(target):
                _write(target, write, spill.max_bytes, shard)
    except OSError as error:
        raise StoreError(
            f"{shard}: can't decode into the spill {folder}: {error.strerror or error}; set spill.dir to a local "
            "folder with room, or rewrite the shards with `zephon pack`"
        ) from error
    return str(target)


def check_spill(
    indices: Iterable[SourceIndex],
    spill: Spill,
    *,
    columns: Mapping[str, Sequence[str] | None] | None = None,
) -> None:
    """Raise ConfigError, naming `zephon pack`, where the sources' large units together don't fit the spill.

    `columns` maps a source's name to the columns that its stage reads; all are counted without it. Bytes
    of Parquet are those its footer gives, which dictionaries can make less than what is written.
    """
    needed = [(index.name, index.large_total((columns or {}).get(index.name))) for index in indices]
    total = sum(num_bytes for _, num_bytes in needed)
    if total > spill.max_bytes:
        listed = ", ".join(f"{name} {num_bytes:,}" for name, num_bytes in needed if num_bytes)
        raise ConfigError(
            f"spill.max_bytes={spill.max_bytes:,} is less than the {total:,} bytes that the sources' large "
            f"compressed units decode to ({listed}); rewrite them with `zephon pack`, or raise spill.max_bytes"
        )


class _Bounded:
    """Passes bytes on to a file until there are more than allowed."""

    def __init__(self, file: BinaryIO, max_bytes: int, shard: str) -> None:
        self._file = file
        self._left = max_bytes
        self._max_bytes = max_bytes
        self._shard = shard
        self.closed = False

    def write(self, data: ReadableBuffer) -> int:
        count = memoryview(data).nbytes
        self._left -= count
        if self._left < 0:
            raise ConfigError(
                f"{self._shard}: a unit decodes to more than spill.max_bytes={self._max_bytes:,} bytes; "
                "rewrite the shard with `zephon pack`, or raise spill.max_bytes"
            )
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


def _write(target: Path, write: Callable[[BinaryIO], None], max_bytes: int, shard: str) -> None:
    """Write the file whole or not at all; the unit's lock is held, so that its temporary file is ours."""
    temporary = target.with_suffix(".tmp")
    try:
        with temporary.open("wb") as file:
            write(cast("BinaryIO", _Bounded(file, max_bytes, shard)))
            file.flush()
            os.fsync(file.fileno())
        with locked(target.parent / "room.lock"):
            _make_room(target.parent, max_bytes - temporary.stat().st_size)
            temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)


def _make_room(folder: Path, max_bytes: int) -> None:
    """Remove the units used longest ago until the rest takes at most `max_bytes`; open ones stay readable."""
    found = []
    for path in folder.glob(f"*{SUFFIX}"):
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        found.append((status.st_mtime_ns, path.name, status.st_size))
    total = sum(size for _, _, size in found)
    for _, name, size in sorted(found):
        if total <= max_bytes:
            return
        (folder / name).unlink(missing_ok=True)
        total -= size


def _touch(path: Path) -> bool:
    """Mark a unit as used now; return whether it is there."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    except PermissionError:
        # Another user's: its age stays, and it can be read all the same.
        return path.exists()
    return True
