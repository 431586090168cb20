"""Writing JSON lines as zstd frames of one block each."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np
import zstandard

from zephon.errors import DataError
from zephon.formats.pack_file import RollingFiles
from zephon.formats.sample import Sample

FRAME_SAMPLES = 64
FRAME_BYTES = 1 << 20
LEVEL = 3


class JsonlShards:
    """JSONL.zst shards of about `shard_bytes`; each frame holds whole lines and can be decoded by itself."""

    def __init__(self, folder: Path, shard_bytes: int) -> None:
        self._files = RollingFiles(folder, ".jsonl.zst")
        self._shard_bytes = shard_bytes
        self._compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
        self._lines: list[bytes] = []
        self._bytes = 0

    @property
    def written(self) -> list[str]:
        """The finished shards' paths."""
        return self._files.written

    def add(self, line: bytes) -> None:
        """Write a line, given without its end."""
        size = len(line) + 1
        if self._lines and (len(self._lines) == FRAME_SAMPLES or self._bytes + size > FRAME_BYTES):
            self._flush()
        self._lines.append(line)
        self._bytes += size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self._flush()
            self._files.finish()
        else:
            self._files.discard()

    def _flush(self) -> None:
        if not self._lines:
            return
        frame = self._compressor.compress(b"\n".join((*self._lines, b"")))
        if self._files.position and self._files.position + len(frame) > self._shard_bytes:
            self._files.finish()
        self._files.file.write(frame)
        self._lines, self._bytes = [], 0


def json_line(sample: Sample, *, shard: str, named: bool) -> bytes:
    """Return a sample as a line of JSON, with its key as __key__ if `named`; DataError where it holds binary data."""
    fields: dict[str, Any] = {"__key__": sample.key} if named else {}
    for name, value in sample.fields.items():
        if isinstance(value, np.ndarray):
            fields[name] = value.tolist()
        elif isinstance(value, bytes):
            try:
                fields[name] = value.decode()
            except UnicodeDecodeError:
                raise DataError(
                    f"{shard}, sample {sample.key}: {name!r} holds bytes that aren't UTF-8; pack as tar"
                ) from None
        else:
            fields[name] = value
    try:
        return msgspec.json.encode(fields)
    except (TypeError, UnicodeEncodeError, msgspec.MsgspecError) as error:
        raise DataError(f"{shard}, sample {sample.key}: can't be written as JSON ({error}); pack as tar") from None
