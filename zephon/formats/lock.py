"""One at a time among the threads and processes of a machine."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path` inside the block; it is made if needed and removed afterwards.

    Raises OSError where the folder can't be written or its file system has no locks.
    """
    with exclusive(path):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


@contextmanager
def exclusive(path: Path) -> Iterator[int]:
    """Hold the lock of the file `path`, made if needed, inside the block; yield its descriptor. Raises OSError."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            # The holder before may have removed or renamed the file: then others lock another one by now.
            if _same_file(fd, path):
                yield fd
                return
        finally:
            os.close(fd)


def _same_file(fd: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(fd)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
