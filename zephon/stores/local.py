"""Files of this machine, and of whatever is mounted on it."""

from __future__ import annotations

import errno
import os
import stat as modes
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from threading import Lock
from typing import TypeVar

from zephon.errors import DataError, StoreError
from zephon.stores.protocol import Stat

T = TypeVar("T")

# Faults that network file systems show for a while and that go away by themselves.
TRANSIENT = frozenset(
    {
        errno.EIO,
        errno.ETIMEDOUT,
        errno.EAGAIN,
        errno.EINTR,
        errno.ESTALE,
        errno.EBUSY,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ECONNRESET,
        errno.ECONNREFUSED,
        errno.ENOTCONN,
        errno.EREMOTEIO,
        errno.ENOMEM,
    }
)
CROWDED = frozenset({errno.EMFILE, errno.ENFILE})


class _Handle:
    """An open file: its descriptor, how many reads use it now, and whether it is to be closed after them."""

    __slots__ = ("fd", "identity", "retired", "users")

    def __init__(self, fd: int) -> None:
        status = os.fstat(fd)
        self.fd = fd
        self.users = 0
        self.retired = False
        self.identity = (status.st_dev, status.st_ino)


class LocalStore:
    """Reads local files with pread over at most `max_open` open descriptors.

    attempts       tries of a read that fails by a transient fault, before StoreError
    first_delay_s  pause after the first of them; doubles each time
    sleep          what makes the pause
    """

    def __init__(
        self,
        *,
        max_open: int = 64,
        attempts: int = 6,
        first_delay_s: float = 0.1,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._max_open = max_open
        self._attempts = attempts
        self._first_delay_s = first_delay_s
        self._sleep = sleep
        self._lock = Lock()
        self._handles: OrderedDict[str, _Handle] = OrderedDict()

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Return exactly `size` bytes from `offset` on; DataError where the file ends before."""
        return self._retry(path, lambda: self._read_once(path, offset, size))

    def size(self, path: str) -> int:
        """Return the file's size in bytes."""
        return self.stat(path).size

    def stat(self, path: str) -> Stat:
        """Return the file's identity as it is now; a file put in place of another is opened anew from here on."""
        status = self._retry(path, partial(os.stat, path))
        if not modes.S_ISREG(status.st_mode):
            raise StoreError(f"{path}: not a regular file; give the path of a shard")
        with self._lock:
            handle = self._handles.get(path)
            if handle is not None and handle.identity != (status.st_dev, status.st_ino):
                self._retire(path)
        return Stat(status.st_size, status.st_mtime_ns)

    def close(self) -> None:
        """Close all descriptors that no read is using; the others when their reads end."""
        with self._lock:
            for path in list(self._handles):
                self._retire(path)

    def _retry(self, path: str, attempt: Callable[[], T]) -> T:
        delay_s = self._first_delay_s
        for number in range(1, self._attempts + 1):
            try:
                return attempt()
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.ENOTDIR):
                    raise StoreError(f"{path}: no such file; check the path, or that its disk is mounted") from None
                crowded = error.errno in CROWDED
                if not crowded and error.errno not in TRANSIENT:
                    raise StoreError(f"{path}: {error.strerror}; check the file and its permissions") from None
                if number == self._attempts:
                    raise StoreError(
                        f"{path}: {error.strerror} in {number} attempts; check the disk or mount, then resume"
                    ) from None
                if crowded:
                    self.close()
                else:
                    # A stale descriptor stays stale: the next attempt opens the file again.
                    with self._lock:
                        self._retire(path)
            self._sleep(delay_s)
            delay_s *= 2
        raise StoreError(f"{path}: no attempt to read was allowed; attempts must be at least 1")

    def _read_once(self, path: str, offset: int, size: int) -> bytes:
        handle = self._acquire(path)
        try:
            data = os.pread(handle.fd, size, offset)
            if len(data) == size:
                return data
            parts = [data]
            got = len(data)
            while got < size:
                data = os.pread(handle.fd, size - got, offset + got)
                if not data:
                    raise DataError(
                        f"{path}: bytes {offset}..{offset + size} were asked for and the file ends at "
                        f"{os.fstat(handle.fd).st_size}: it shrank since it was indexed; "
                        "restore it, or delete its index"
                    )
                parts.append(data)
                got += len(data)
            return b"".join(parts)
        finally:
            self._release(handle)

    def _acquire(self, path: str) -> _Handle:
        with self._lock:
            handle = self._handles.get(path)
            if handle is not None:
                self._handles.move_to_end(path)
                handle.users += 1
                return handle
        opened = _Handle(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        with self._lock:
            handle = self._handles.get(path)
            if handle is not None:  # another thread was faster
                os.close(opened.fd)
            else:
                handle = self._handles[path] = opened
                while len(self._handles) > self._max_open:
                    self._retire(next(iter(self._handles)))
            handle.users += 1
            return handle

    def _release(self, handle: _Handle) -> None:
        with self._lock:
            handle.users -= 1
            if handle.retired and not handle.users:
                os.close(handle.fd)

    def _retire(self, path: str) -> None:
        """Forget a path's descriptor, closing it after its last read; the lock is held."""
        handle = self._handles.pop(path, None)
        if handle is None:
            return
        handle.retired = True
        if not handle.users:
            os.close(handle.fd)
