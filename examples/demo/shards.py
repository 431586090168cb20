"""Write texts as shards: WebDataset tar, JSONL in Zstandard frames, Parquet."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from texts import Text

# Frames and row groups are what a reader must decode to reach a sample: about a block, so that nothing is wasted.
UNIT_BYTES = 1 << 20


def write_tar(texts: Sequence[Text], folder: Path, name: str, shard_bytes: int) -> list[Path]:
    """Write samples of two members, .txt and .json, into name-000.tar, name-001.tar, …; equal texts, equal bytes."""
    paths = []
    first = 0
    for number, part in enumerate(split(texts, shard_bytes)):
        path = folder / f"{name}-{number:03d}.tar"
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
            for index, text in enumerate(part, start=first):
                _add(archive, f"{index:07d}.txt", text.text.encode())
                _add(archive, f"{index:07d}.json", json.dumps({"path": text.path}).encode())
        first += len(part)
        paths.append(path)
    return paths


def write_jsonl(texts: Sequence[Text], folder: Path, name: str, shard_bytes: int) -> list[Path]:
    """Write {"text", "path"} lines into name-000.jsonl.zst, …, a Zstandard frame about each MiB."""
    paths = []
    compressor = zstandard.ZstdCompressor(level=3)
    for number, part in enumerate(split(texts, shard_bytes)):
        path = folder / f"{name}-{number:03d}.jsonl.zst"
        with path.open("wb") as file:
            for unit in split(part, UNIT_BYTES):
                lines = (json.dumps({"text": text.text, "path": text.path}, ensure_ascii=False) + "\n" for text in unit)
                file.write(compressor.compress("".join(lines).encode()))
        paths.append(path)
    return paths


def write_parquet(texts: Sequence[Text], folder: Path, name: str, shard_bytes: int) -> list[Path]:
    """Write columns `content` and `path` into name-000.parquet, …, a row group about each MiB."""
    schema = pa.schema([("content", pa.string()), ("path", pa.string())])
    paths = []
    for number, part in enumerate(split(texts, shard_bytes)):
        path = folder / f"{name}-{number:03d}.parquet"
        with pq.ParquetWriter(path, schema, compression="zstd") as writer:
            for unit in split(part, UNIT_BYTES):
                columns = {"content": [text.text for text in unit], "path": [text.path for text in unit]}
                writer.write_table(pa.table(columns, schema=schema))
        paths.append(path)
    return paths


def split(texts: Iterable[Text], max_bytes: int) -> Iterator[list[Text]]:
    """Yield runs of texts that reach `max_bytes` (the last may not), in order; none is empty."""
    part: list[Text] = []
    size = 0
    for text in texts:
        part.append(text)
        size += len(text.text.encode())
        if size >= max_bytes:
            yield part
            part, size = [], 0
    if part:
        yield part


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))
