"""Reading whole shards block by block, for the tests of formats."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

from zephon.config import Source, Spill
from zephon.formats.index import SourceIndex, build_index
from zephon.formats.read import read_samples
from zephon.formats.sample import Sample


def index_of(*paths: Path, cache: Path, on_truncated: Any = "raise", **source: Any) -> SourceIndex:
    """Index shards as a source named web."""
    config = Source(path=[str(path) for path in paths], **source)
    return build_index("web", config, index_dir=str(cache), on_truncated=on_truncated)


def samples_of(index: SourceIndex, *, columns: Any = None, spill: Spill | None = None, cache: Path) -> list[Sample]:
    """Read all samples of a source, block by block."""
    result: list[Sample] = []
    for block in range(index.num_blocks):
        samples, _ = read_samples(
            index.location(block),
            range(index.samples_in(block)),
            columns=columns,
            spill=spill or Spill(dir=str(cache / "spill")),
            index_dir=str(cache),
        )
        result += samples
    return result


def hashes_of(index: SourceIndex, *, columns: Any = None, spill: Spill | None = None, cache: Path) -> list[int]:
    """Return each block's raw hash, asking for one sample of each."""
    return [
        read_samples(
            index.location(block),
            [0],
            columns=columns,
            spill=spill or Spill(dir=str(cache / "spill")),
            index_dir=str(cache),
        )[1]
        for block in range(index.num_blocks)
    ]


def tables_of(index: SourceIndex) -> list[tuple[int, int, int, int]]:
    """Return the block table as plain numbers."""
    locations = [index.location(block) for block in range(index.num_blocks)]
    return [(place.offset, place.size, place.unit, place.samples) for place in locations]


def write_tar(path: Path, members: list[tuple[str, bytes]], *, format_: int = tarfile.USTAR_FORMAT) -> Path:
    """Write a tar of regular members."""
    with tarfile.open(path, "w", format=format_) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path
