"""Callables that travel to another process, without its importing the program's main module for nothing."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from zephon.errors import ConfigError


class Cargo(msgspec.Struct, frozen=True):
    """A pickled callable, and how to find the main module if it refers to that."""

    pickled: bytes
    main: dict[str, str]


def pack_callable(function: Callable[[], Any], *, place: str) -> bytes:
    """Return a picklable callable as bytes for another process; ConfigError where it can't be pickled."""
    try:
        pickled = pickle.dumps(function)
    except Exception as error:
        raise ConfigError(
            f"{place}: can't be sent to another process ({error}); use functions of a module, not lambdas or closures"
        ) from error
    main: dict[str, str] = {}
    if b"__main__" in pickled:
        from multiprocessing.spawn import get_preparation_data

        data = get_preparation_data("zephon")
        # A program from standard input has a path, but no file there.
        if "init_main_from_name" in data or Path(data.get("init_main_from_path", "")).is_file():
            main = {name: data[name] for name in ("init_main_from_name", "init_main_from_path") if name in data}
    return msgspec.msgpack.encode(Cargo(pickled, main))


def unpack_callable(packed: bytes) -> Callable[[], Any]:
    """Return the callable that `pack_callable` took; imports the main module only if it refers to that."""
    cargo = msgspec.msgpack.decode(packed, type=Cargo)
    if cargo.main:
        # Needs the guard `if __name__ == "__main__"` in the program, as all of Python's spawning does.
        from multiprocessing.spawn import prepare

        prepare(dict(cargo.main))
    function: Callable[[], Any] = pickle.loads(cargo.pickled)
    return function
