"""Decoded units of a shard that doesn't exist, for the tests of the spill."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from zephon.config import Spill
from zephon.formats.sample import Reading
from zephon.formats.spill import unit_name
from zephon.formats.unit_file import Unit
from zephon.formats.units import with_unit
from zephon.page import Location
from zephon.stores.protocol import Stat

Write = Callable[[BinaryIO], None]


def spilled(
    folder: Path, unit: int, write: Write, *, max_bytes: int = 1 << 20, large: bool = True, use: object = None
) -> bytes | None:
    """Return the whole decoded unit of a shard named s, by way of the spill."""
    location = Location("s", "jsonl", 0, 1, unit, 0, 1, large, not large)
    reading = Reading(spill=Spill(dir=str(folder), max_bytes=max_bytes))
    take: Callable[[Unit], bytes] = use or (lambda opened: opened.read(0, opened.num_bytes))  # type: ignore[assignment]
    return with_unit(location, Stat(1, 1), None, write, take, reading)


def file_of(folder: Path, unit: int) -> Path:
    """Return where a unit of the shard s is spilled to."""
    return folder / unit_name("s", Stat(1, 1), unit, None)


def units_in(folder: Path) -> list[str]:
    """Return the names of the units in a spill."""
    return sorted(path.name for path in folder.glob("*.unit"))


def files_in(folder: Path) -> list[str]:
    """Everything but the count of bytes."""
    return sorted(path.name for path in folder.iterdir() if path.name != "room")


def writer(data: bytes, calls: list[int] | None = None) -> Write:
    """Return what writes `data`, and notes each time that it does."""

    def write(file: BinaryIO) -> None:
        if calls is not None:
            calls.append(len(data))
        file.write(data)

    return write
