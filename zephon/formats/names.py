"""What a shard's name says about its format."""

from __future__ import annotations

from pathlib import PurePath

from zephon.errors import ConfigError

SUFFIXES = {
    ".tar": "tar",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
COMPRESSED = {".gz": "gz", ".zst": "zst", ".zstd": "zst"}


def known_format(path: str) -> str | None:
    """Return the format that a name stands for, or None."""
    suffixes = [suffix.lower() for suffix in PurePath(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        # Only JSONL is read through a compression; a compressed tar can't be read in blocks.
        found = SUFFIXES.get(suffixes[-2]) if len(suffixes) > 1 else None
        return found if found == "jsonl" else None
    return SUFFIXES.get(suffixes[-1]) if suffixes else None


def format_of(path: str, configured: str, *, place: str) -> str:
    """Return the configured format, or with `auto` the one that the name stands for.

    Raises ConfigError, naming `place` (sources.<name>), where the name says nothing.
    """
    if configured != "auto":
        return configured
    found = known_format(path)
    if found is None:
        known = ", ".join(SUFFIXES)
        raise ConfigError(
            f"{path}: the name says no format (known: {known}; JSONL also with .gz or .zst); "
            f"set {place}.format, or unpack the file"
        )
    return found


def compression_of(path: str) -> str:
    """Return "gz", "zst" or "" by the name's last suffix."""
    return COMPRESSED.get(PurePath(path).suffix.lower(), "")
