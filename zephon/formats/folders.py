"""Where indexes and decoded units are kept."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path | None:
    """Return the user's cache folder of Zephon ($XDG_CACHE_HOME or ~/.cache), None where there is no home."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    if Path(configured).is_absolute():
        return Path(configured) / "zephon"
    try:
        return Path.home() / ".cache" / "zephon"
    except RuntimeError:
        return None


def cache_folder(index_dir: str | None) -> Path | None:
    """Return the folder of the index cache: the configured one, else the user's."""
    return Path(index_dir) if index_dir is not None else user_cache()
