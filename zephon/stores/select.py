"""Which store a path belongs to."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from zephon.errors import ConfigError
from zephon.stores.local import LocalStore
from zephon.stores.protocol import Store


def store_for(path: str) -> Store:
    """Return this process's store for a path; ConfigError where no store serves its scheme."""
    scheme, separator, _ = path.partition("://")
    if separator:
        raise ConfigError(f"{path}: no store for {scheme}://; give a local path, or mount the bucket")
    return _local()


# One per process, so that its workers share the open descriptors.
_local: Callable[[], LocalStore] = lru_cache(maxsize=1)(LocalStore)
