"""A state in a file: MessagePack of the whole mapping, written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from zephon.errors import StateError, StoreError
from zephon.state import check_state


def read_state(path: Path) -> dict[str, Any]:
    """Return the state in a file. Raises StoreError where it can't be read, StateError where it is no state."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StoreError(f"can't read the state {path}: {error.strerror or error}") from error
    try:
        state = msgspec.msgpack.decode(data)
        check_state(state)
    except (msgspec.DecodeError, StateError) as error:
        raise StateError(f"{path} holds no state: {error}; pass a file that `zephon run --state-out` wrote") from error
    return dict(state)


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write a state to a file in one step: a reader sees the old file or the new one. Raises StoreError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(msgspec.msgpack.encode(state))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StoreError(f"can't write the state {path}: {error.strerror or error}") from error
