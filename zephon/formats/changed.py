"""The error for a shard that isn't what its index says."""

from __future__ import annotations

from zephon.errors import DataError


def changed(path: str) -> DataError:
    """Return the error for a block that doesn't hold what the index says."""
    return DataError(f"{path}: changed since it was indexed; restore it, or delete the index {path}.zephon-index")
