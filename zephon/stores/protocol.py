"""What a store is: ranges of bytes of named files."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Stat(NamedTuple):
    """A shard's identity on its store: size in bytes and time of change in nanoseconds."""

    size: int
    mtime_ns: int


class Store(Protocol):
    """Reads ranges of files; safe to use from several threads at once.

    Transient faults are retried inside. Raises StoreError where a file is missing or stays unreadable,
    and DataError where a file is shorter than what is asked for.
    """

    def read(self, path: str, offset: int, size: int) -> bytes:
        """Return exactly `size` bytes from `offset` on."""
        ...

    def size(self, path: str) -> int:
        """Return the file's size in bytes."""
        ...

    def stat(self, path: str) -> Stat:
        """Return the file's identity as it is now."""
        ...
