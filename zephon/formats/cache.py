"""What was read or decoded last in this process, bounded by bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import lru_cache
from threading import Lock
from typing import Any

CACHE_BYTES = 64 << 20


class ByteCache:
    """Keeps the values used last while they take at most `max_bytes`; for use by several threads.

    It only saves time: a value is a pure function of its key, which names the shard's identity.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._lock = Lock()
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._bytes = 0

    def get(self, key: Hashable) -> Any:
        """Return the value of a key, or None."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def put(self, key: Hashable, value: Any, num_bytes: int) -> None:
        """Keep a value that takes `num_bytes`; one that is larger than the whole cache isn't kept."""
        if num_bytes > self._max_bytes:
            return
        with self._lock:
            old = self._values.pop(key, None)
            self._bytes += num_bytes - (old[1] if old else 0)
            self._values[key] = (value, num_bytes)
            while self._bytes > self._max_bytes:
                _, (_, freed) = self._values.popitem(last=False)
                self._bytes -= freed


def _new_cache() -> ByteCache:
    return ByteCache(CACHE_BYTES)


# A cache of pure functions' results, one per process.
decoded: Callable[[], ByteCache] = lru_cache(maxsize=1)(_new_cache)
