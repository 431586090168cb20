"""Decoded units at hand: opened once in this process, decoded once by whoever needs them first."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import BinaryIO, TypeVar

from zephon.errors import ConfigError, StoreError
from zephon.formats.lock import exclusive
from zephon.formats.sample import Column, Reading
from zephon.formats.spill import spill_folder, unit_name
from zephon.formats.spill_room import PARTIAL, move_in
from zephon.formats.unit_file import Unit, open_unit, write_unit
from zephon.page import Location
from zephon.stores.protocol import Stat

T = TypeVar("T")
MAX_OPEN = 64
MAX_KNOWN = 1 << 16


class OpenUnits:
    """The units opened last, at most `max_open`; which files are known to be whole; folders that can't be written."""

    def __init__(self, max_open: int) -> None:
        self._max_open = max_open
        self._lock = Lock()
        self._units: OrderedDict[Hashable, Unit] = OrderedDict()
        self._known: OrderedDict[Path, tuple[int, int]] = OrderedDict()
        self._refused: set[Path] = set()

    def get(self, key: Hashable) -> Unit | None:
        """Return an open unit."""
        with self._lock:
            unit = self._units.get(key)
            if unit is not None:
                self._units.move_to_end(key)
            return unit

    def put(self, key: Hashable, path: Path, unit: Unit) -> None:
        """Keep a unit open, and know its file as whole even after it is closed."""
        identity = unit.identity
        with self._lock:
            self._units[key] = unit
            self._known[path] = identity
            # Those dropped are closed when their last reader is done.
            if len(self._units) > self._max_open:
                self._units.popitem(last=False)
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)

    def forget(self, key: Hashable, path: Path) -> None:
        """Close a unit that can't be read."""
        with self._lock:
            self._units.pop(key, None)
            self._known.pop(path, None)

    def known(self, path: Path) -> tuple[int, int] | None:
        """Return the identity of a file that was whole."""
        return self._known.get(path)

    def refuse(self, folder: Path) -> None:
        """Have no more medium units decoded into a folder that couldn't be written."""
        self._refused.add(folder)

    def refuses(self, folder: Path) -> bool:
        """Return whether `refuse` was called."""
        return folder in self._refused


def with_unit(
    location: Location,
    stat: Stat,
    columns: tuple[Column, ...] | None,
    write: Callable[[BinaryIO], None],
    use: Callable[[Unit], T],
    reading: Reading,
) -> T | None:
    """Return what `use` makes of a block's decoded unit, which `write` decodes where the spill lacks it.

    It is decoded once, whoever asks: others wait for its lock, and for no other unit's. None where a medium
    unit can't be spilled; for a large one that is a StoreError, or a ConfigError where the unit alone exceeds
    `spill.max_bytes`.
    """
    units = open_units()
    key = (location.path, stat, location.unit, columns, reading.spill, reading.index_dir)
    unit = units.get(key)
    if unit is not None:
        try:
            return use(unit)
        except OSError:
            # Gone from under us on a network file system: opened, or decoded, again below.
            pass
    path = spill_folder(reading.spill, reading.index_dir) / unit_name(location.path, stat, location.unit, columns)
    if unit is not None:
        units.forget(key, path)
    try:
        unit = open_unit(path, units.known(path))
        if unit is None:
            if not location.large and units.refuses(path.parent):
                return None
            unit = _decode(path, write, location, reading.spill.max_bytes)
        units.put(key, path, unit)
        return use(unit)
    except (OSError, ConfigError) as error:
        if not location.large:
            units.refuse(path.parent)
            return None
        if isinstance(error, ConfigError):
            raise
        raise StoreError(
            f"{location.path}: can't use the spill {path.parent}: {error.strerror or error}; set spill.dir to "
            "a local folder with room, or rewrite the shards with `zephon pack`"
        ) from error


def _decode(path: Path, write: Callable[[BinaryIO], None], location: Location, max_bytes: int) -> Unit:
    """Write the unit's file whole or not at all, and open it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(PARTIAL)
    # The unfinished file is its own lock: one file less to make for each of many small units.
    with exclusive(temporary) as fd:
        try:
            unit = open_unit(path)
            if unit is None:
                num_bytes = write_unit(fd, write, max_bytes=max_bytes, sync=location.large, shard=location.path)
                # Open from here on, because others may need its room at once.
                unit = Unit(os.open(temporary, os.O_RDONLY | os.O_CLOEXEC), num_bytes)
                move_in(temporary, path, size=unit.file_bytes, max_bytes=max_bytes)
                return unit
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        temporary.unlink(missing_ok=True)
    return unit


def _new_units() -> OpenUnits:
    return OpenUnits(MAX_OPEN)


# One per process; a cache of files whose content their names fix.
open_units: Callable[[], OpenUnits] = lru_cache(maxsize=1)(_new_units)
