"""Shared memory without a name: nothing that a crash of either side could leave behind."""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from zephon.errors import StoreError

LAST_STANDARD = 2
NAMED_DIR = "/dev/shm"


def reserve(num_bytes: int) -> int:
    """Return a file descriptor of so many bytes of shared memory; the caller closes it.

    An anonymous memory file where the system has them (no limit by the size of /dev/shm), else an
    unlinked file in /dev/shm or the temporary folder. Raises StoreError where the memory can't be had.
    """
    place = "an anonymous memory file" if hasattr(os, "memfd_create") else _folder()
    try:
        descriptor = _open()
        try:
            os.ftruncate(descriptor, num_bytes)
            if hasattr(os, "posix_fallocate"):
                # Taken now: a full file system would otherwise kill whoever writes to it first (SIGBUS).
                os.posix_fallocate(descriptor, 0, num_bytes)
        except OSError:
            os.close(descriptor)
            raise
    except OSError as error:
        raise StoreError(
            f"can't get {num_bytes} bytes of shared memory from {place}: {error.strerror}; use fewer "
            f"backend.workers, give the machine or container more (--shm-size), or use backend.kind=threads"
        ) from error
    return descriptor


def reserve_lazily(num_bytes: int) -> int | None:
    """Return a descriptor of memory that is taken page by page as it is written to; None where it can't be had.

    Only of anonymous memory files: these have no limit but the machine's memory (and ulimit -f, which shows here).
    """
    if not hasattr(os, "memfd_create"):
        return None
    descriptor = None
    try:
        descriptor = _open()
        os.ftruncate(descriptor, num_bytes)
    except OSError:
        if descriptor is not None:
            os.close(descriptor)
        return None
    return descriptor


def attach(descriptor: int, num_bytes: int) -> NDArray[np.uint8]:
    """Map shared memory as uint8 [num_bytes]; it is unmapped when nothing refers to it, and outlives the descriptor."""
    return np.frombuffer(mmap.mmap(descriptor, num_bytes), np.uint8)


def _open() -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("zephon")
        if descriptor > LAST_STANDARD:
            return descriptor
        # Standard input or output is closed, and in a child that number will be it.
        try:
            return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, LAST_STANDARD + 1)
        finally:
            os.close(descriptor)
    descriptor, name = tempfile.mkstemp(prefix="zephon-", dir=_folder())
    Path(name).unlink()
    return descriptor


def _folder() -> str:
    return NAMED_DIR if Path(NAMED_DIR).is_dir() else tempfile.gettempdir()
