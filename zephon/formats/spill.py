"""The spill: restart units decoded once into files of a folder, and which units these are."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

from zephon.config import Spill
from zephon.errors import ConfigError
from zephon.formats.folders import cache_folder
from zephon.formats.sample import Column
from zephon.formats.source_index import SourceIndex
from zephon.formats.spill_room import SUFFIX
from zephon.formats.unit_file import touch
from zephon.stores.protocol import Stat
from zephon.stores.select import store_for

# By source: the columns that its stage reads, None for all.
Columns = Mapping[str, Sequence[Column] | None]


def spill_folder(spill: Spill, index_dir: str | None) -> Path:
    """Return the spill's folder; ConfigError where none can be told."""
    if spill.dir is not None:
        return Path(spill.dir)
    folder = cache_folder(index_dir)
    if folder is None:
        raise ConfigError("spill.dir is unset and there is no home folder; set spill.dir or index_dir")
    return folder / "spill"


def unit_name(path: str, stat: Stat, unit: int, columns: Sequence[Column] | None) -> str:
    """Return the file name of a decoded unit: a digest of the shard's identity, the unit and the columns asked for."""
    digest = blake2b(digest_size=16)
    names = [column if isinstance(column, str) else repr(column) for column in columns or ("*",)]
    for part in (os.path.abspath(path), str(stat.size), str(stat.mtime_ns), str(unit), *names):  # noqa: PTH100
        text = part.encode("utf-8", "surrogateescape")
        digest.update(len(text).to_bytes(4, "little") + text)
    return digest.hexdigest() + SUFFIX


def choose_spilled(
    indices: Mapping[str, SourceIndex], spill: Spill, *, index_dir: str | None, columns: Columns
) -> dict[str, SourceIndex]:
    """Return the indices, with the medium units spilled as well where there is room for all of them.

    Medium units of all sources or none: the choice changes only what reading costs. Raises ConfigError, naming
    `zephon pack`, where even the large units don't fit. Bytes of Parquet are those its footer gives, which
    dictionaries can make less than what is written. The units' files that are there already count as used now,
    so that others' make room for what is still to come.
    """
    large = {name: index.large_total(columns.get(name)) for name, index in indices.items()}
    total = sum(large.values())
    if total > spill.max_bytes:
        listed = ", ".join(f"{name} {num_bytes:,}" for name, num_bytes in large.items() if num_bytes)
        raise ConfigError(
            f"spill.max_bytes={spill.max_bytes:,} is less than the {total:,} bytes that the sources' large "
            f"compressed units decode to ({listed}); rewrite them with `zephon pack`, or raise spill.max_bytes"
        )
    medium = sum(index.medium_total(columns.get(name)) for name, index in indices.items())
    if not total + medium:
        return dict(indices)
    folder = _folder(spill, index_dir)
    if medium and folder is not None and total + medium <= min(spill.max_bytes, _available(folder)):
        indices = {name: index.with_medium_spilled() for name, index in indices.items()}
    if folder is not None:
        _mark_used(folder, indices, columns)
    return dict(indices)


def _folder(spill: Spill, index_dir: str | None) -> Path | None:
    try:
        return spill_folder(spill, index_dir)
    except ConfigError:
        # Large units will say so; medium ones can do without.
        return None


def _units_in(folder: Path) -> dict[str, os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return {entry.name: entry for entry in entries if entry.name.endswith(SUFFIX)}
    except OSError:
        return {}


def _available(folder: Path) -> int:
    """Return the bytes that the spill could take on its disk, those of its units included; 0 where it can't be told."""
    there = next((parent for parent in (folder, *folder.parents) if parent.exists()), folder)
    try:
        return shutil.disk_usage(there).free + sum(entry.stat().st_size for entry in _units_in(folder).values())
    except OSError:
        return 0


def _mark_used(folder: Path, indices: Mapping[str, SourceIndex], columns: Columns) -> None:
    there: Collection[str] = _units_in(folder).keys()
    if not there:
        return
    for name, index in indices.items():
        for path, units in index.spilled_units():
            stat = store_for(path).stat(path)
            for unit in units:
                # Units of rows are kept by columns, others aren't.
                for chosen in (None, columns.get(name)):
                    file = unit_name(path, stat, unit, chosen)
                    if file in there:
                        touch(folder / file)
