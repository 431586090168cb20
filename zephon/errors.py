"""The errors Zephon raises: one line each, with the fact, the value, the place and the remedy.

ZephonError
├── ConfigError   the configuration can't work; raised before any data is read
├── StateError    a state is damaged, incomplete, or belongs to another plan or other data
├── StoreError    bytes can't be read: missing file, I/O error that outlived its retries, dead worker
└── DataError     bytes were read and are not what the format, stage or tokenizer needs
"""

from __future__ import annotations


class ZephonError(Exception):
    """Base of everything Zephon raises on purpose; `str(error)` is one line."""


class ConfigError(ZephonError):
    """The configuration can't work; the message names the field and what would work."""


class StateError(ZephonError):
    """A state is damaged, incomplete, or belongs to another plan or other data."""


class StoreError(ZephonError):
    """Bytes can't be read from a store, or a worker died again and again."""


class DataError(ZephonError):
    """Bytes were read and are not what the format, stage or tokenizer needs."""
