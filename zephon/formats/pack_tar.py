"""Writing samples as plain tar, a member per field."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np

from zephon.errors import DataError
from zephon.formats.pack_file import RollingFiles
from zephon.formats.sample import Sample


class TarShards:
    """Tar shards of at most `shard_bytes`, unless one sample needs more; equal samples give equal bytes."""

    def __init__(self, folder: Path, shard_bytes: int) -> None:
        self._files = RollingFiles(folder, ".tar")
        self._shard_bytes = shard_bytes
        self._tar: tarfile.TarFile | None = None
        self._keys: set[str] = set()

    @property
    def written(self) -> list[str]:
        """The finished shards' paths."""
        return self._files.written

    def add(self, sample: Sample, key: str, *, shard: str) -> None:
        """Write a sample; a key that its output shard has already gets a number behind it."""
        members = _members(sample, shard)
        size = sum(1024 + len(value) for value in members.values())
        if self._tar is not None and self._files.position + size > self._shard_bytes:
            self._finish()
        if self._tar is None:
            self._tar = tarfile.open(fileobj=self._files.file, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115
        unique, number = key, 0
        while unique in self._keys:
            number += 1
            unique = f"{key}-{number}"
        self._keys.add(unique)
        for name, value in members.items():
            info = tarfile.TarInfo(f"{unique}.{name}")
            info.size = len(value)
            self._tar.addfile(info, io.BytesIO(value))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self._finish()
        else:
            self._files.discard()

    def _finish(self) -> None:
        if self._tar is not None:
            self._tar.close()
            self._tar = None
        self._keys = set()
        self._files.finish()


def _members(sample: Sample, shard: str) -> dict[str, bytes]:
    """Return the bytes of a sample's members by extension; null fields have none."""
    if sample.error is not None:
        raise DataError(f"{shard}, sample {sample.key}: {sample.error}; remove it, or pack as jsonl.zst")
    members = {}
    for name, value in sample.fields.items():
        if "/" in name or "\0" in name:
            raise DataError(f"{shard}, sample {sample.key}: {name!r} can't name a tar member; pack as jsonl.zst")
        if value is not None:
            members[name] = _bytes(value, name, sample, shard)
    # A sample stays one even if it has nothing.
    return members or {"json": b"{}"}


def _bytes(value: Any, name: str, sample: Sample, shard: str) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    try:
        return msgspec.json.encode(value.tolist() if isinstance(value, np.ndarray) else value)
    except (TypeError, UnicodeEncodeError, msgspec.MsgspecError) as error:
        raise DataError(
            f"{shard}, sample {sample.key}: {name!r} can't be written as a tar member ({error}); leave the field out"
        ) from None
