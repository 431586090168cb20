"""A file of a store as a Python file object, for libraries that want one."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from zephon.stores.protocol import Store

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class StoreFile(io.RawIOBase):
    """A seekable read-only file over a store's range reads; not for use by two threads at once."""

    def __init__(self, store: Store, path: str, size: int) -> None:
        super().__init__()
        self._store = store
        self._path = path
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next byte read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position and return it."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        """Return up to `size` bytes; fewer only at the file's end."""
        left = max(0, self._size - self._position)
        count = left if size is None or size < 0 else min(size, left)
        data = self._store.read(self._path, self._position, count) if count else b""
        self._position += count
        return data

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill a buffer and return the number of bytes written to it."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)
