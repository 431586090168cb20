"""Keeping the spill's folder within its bound, whoever writes to it and whenever."""

from __future__ import annotations

import os
import time
from pathlib import Path

from zephon.formats.lock import exclusive

SUFFIX = ".unit"
PARTIAL = ".tmp"
_TOTAL = "room"
# What a killed process left unfinished; nobody takes so long to write a piece of a unit.
_ABANDONED_S = 86_400.0


def move_in(temporary: Path, target: Path, *, size: int, max_bytes: int) -> None:
    """Give a finished file of `size` bytes its name, making room for it in its folder first. Raises OSError.

    The units used longest ago go; those that others have open stay readable to them. The folder is only
    looked through when its bytes, kept in the file `room`, exceed `max_bytes`: it may hold thousands of units.
    """
    folder = target.parent
    with exclusive(folder / _TOTAL) as fd:
        total = _known_total(fd)
        if total is None or total + size > max_bytes:
            total = _make_room(folder, size, max_bytes)
        # First, so that a crash in between leaves a total that is too high, which the next look corrects.
        os.pwrite(fd, b"%-20d" % (total + size), 0)
        temporary.rename(target)


def _known_total(fd: int) -> int | None:
    try:
        return int(os.pread(fd, 32, 0))
    except ValueError:
        return None


def _make_room(folder: Path, size: int, max_bytes: int) -> int:
    """Remove units until the rest takes at most max_bytes - size; return what it takes."""
    found = []
    for path in folder.iterdir():
        try:
            status = path.stat()
        except FileNotFoundError:
            continue
        if path.suffix == SUFFIX:
            found.append((status.st_mtime_ns, path.name, status.st_size))
        elif path.suffix == PARTIAL and status.st_mtime < time.time() - _ABANDONED_S:
            path.unlink(missing_ok=True)
    total = sum(taken for _, _, taken in found)
    if total + size > max_bytes:
        # Some more than needed, so that the next unit doesn't have to look again.
        goal = max(0, max_bytes - size - max_bytes // 16)
        for _, name, taken in sorted(found):
            if total <= goal:
                break
            (folder / name).unlink(missing_ok=True)
            total -= taken
    return total
