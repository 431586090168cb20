"""The file of a decoded unit: its bytes, then a trailer that tells a whole file from one that a crash tore."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from xxhash import xxh3_64

from zephon.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

# Bytes of the unit, their XXH3-64, and what vouches for them.
_TRAILER = struct.Struct("<QQ8s")
SYNCED = b"zunit-s\n"
HASHED = b"zunit-h\n"
_PIECE = 1 << 20


class Unit:
    """A decoded unit's open file; readable as long as this lives, whoever removes the file."""

    __slots__ = ("_fd", "num_bytes")

    def __init__(self, fd: int, num_bytes: int) -> None:
        self._fd = fd
        self.num_bytes = num_bytes

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        close(self._fd)

    def read(self, offset: int, size: int) -> bytes:
        """Return `size` bytes from `offset` on, fewer at the unit's end; OSError where the file lacks them."""
        size = max(0, min(size, self.num_bytes - offset))
        data = os.pread(self._fd, size, offset)
        while len(data) < size:
            more = os.pread(self._fd, size - len(data), offset + len(data))
            if not more:
                raise OSError(errno.EIO, "a spilled unit was cut off")
            data += more
        return data

    @property
    def file_bytes(self) -> int:
        """What the file takes."""
        return self.num_bytes + _TRAILER.size

    @property
    def identity(self) -> tuple[int, int]:
        """Device and number of the file."""
        status = os.fstat(self._fd)
        return status.st_dev, status.st_ino


def open_unit(path: Path, known: tuple[int, int] | None = None) -> Unit | None:
    """Return a unit's file, marked as used now; None where there is none, or none that is whole.

    A file that isn't `known` to be whole is read through once where no fsync vouches for it. Raises OSError.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    unit = Unit(fd, os.fstat(fd).st_size - _TRAILER.size)
    if unit.num_bytes < 0:
        return None
    num_bytes, checksum, kind = _TRAILER.unpack(os.pread(fd, _TRAILER.size, unit.num_bytes))
    if num_bytes != unit.num_bytes or kind not in (SYNCED, HASHED):
        return None
    if kind == HASHED and unit.identity != known and _checksum(unit) != checksum:
        return None
    touch(path)
    return unit


def touch(path: Path) -> None:
    """Mark a unit as used now, if it is there and ours; units used longest ago make room."""
    try:
        os.utime(path)
    except (FileNotFoundError, PermissionError):
        # Gone, which its open file doesn't mind, or another user's: its age stays, and it can be read all the same.
        return


def write_unit(fd: int, write: Callable[[BinaryIO], None], *, max_bytes: int, sync: bool, shard: str) -> int:
    """Make a file of what `write` writes, and the trailer; return the unit's bytes.

    With `sync` it lasts through a crash of the machine; without, a crash is noticed by the checksum: for a
    small unit a tenth of the time. Raises ConfigError, naming `shard`, where it exceeds `max_bytes`, and OSError.
    """
    os.ftruncate(fd, 0)
    with open(fd, "wb", closefd=False) as file:
        bounded = _Bounded(file, max_bytes, shard)
        write(cast("BinaryIO", bounded))
        num_bytes = file.tell()
        file.write(_TRAILER.pack(num_bytes, bounded.checksum(), SYNCED if sync else HASHED))
        file.flush()
        if sync:
            os.fsync(fd)
    return num_bytes


class _Bounded:
    """Passes bytes on to a file until there are more than allowed, and keeps their checksum."""

    def __init__(self, file: BinaryIO, max_bytes: int, shard: str) -> None:
        self._file = file
        self._left = max_bytes - _TRAILER.size
        self._max_bytes = max_bytes
        self._shard = shard
        self._hash = xxh3_64()

    def write(self, data: ReadableBuffer) -> int:
        view = memoryview(data)
        self._left -= view.nbytes
        if self._left < 0:
            raise ConfigError(
                f"{self._shard}: a unit decodes to more than spill.max_bytes={self._max_bytes:,} bytes; "
                "rewrite the shard with `zephon pack`, or raise spill.max_bytes"
            )
        self._hash.update(view)
        return self._file.write(view)

    def checksum(self) -> int:
        value: int = self._hash.intdigest()
        return value


def _checksum(unit: Unit) -> int:
    digest = xxh3_64()
    for offset in range(0, unit.num_bytes, _PIECE):
        digest.update(unit.read(offset, _PIECE))
    value: int = digest.intdigest()
    return value
