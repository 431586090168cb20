"""A state in a file: MessagePack of the whole mapping, written whole or not at all, or a part of a checkpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from zephon.cli.checkpoint import BEGINNING_BYTES, choose_state, is_checkpoint, split_place
from zephon.errors import StateError, StoreError
from zephon.state import check_state


def read_state(path: Path) -> dict[str, Any]:
    """Return the state in a file of `zephon run --state-out` or of torch.save, where the path may be FILE:place.

    Raises StoreError where the file can't be read, StateError where it holds no state, or several.
    """
    file, place = split_place(path)
    try:
        with file.open("rb") as opened:
            data = opened.read(BEGINNING_BYTES)
            # Not all of a checkpoint, which may be large; and a pipe can't be read twice.
            if not is_checkpoint(data):
                data += opened.read()
    except OSError as error:
        raise StoreError(f"can't read the state {path}: {error.strerror or error}") from error
    if is_checkpoint(data):
        return choose_state(file, place)
    if place is not None:
        raise StateError(f"{file} is no checkpoint of torch.save, so it has no place {place!r}; pass {file}")
    try:
        state = msgspec.msgpack.decode(data)
        check_state(state)
    except (msgspec.DecodeError, StateError) as error:
        raise StateError(
            f"{path} holds no state: {error}; pass a file that `zephon run --state-out` or torch.save wrote"
        ) from error
    return dict(state)


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write a state to a file in one step: a reader sees the old file or the new one.

    Raises StoreError, StateError where that would replace a checkpoint of torch.save, with all else that it holds.
    """
    try:
        with path.open("rb") as file:
            if path.is_file() and is_checkpoint(file.read(BEGINNING_BYTES)):
                raise StateError(f"{path} is a checkpoint, of which a state alone would be left; name another file")
    except OSError:
        # Not there yet, as a rule; else writing says what is wrong.
        pass
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
