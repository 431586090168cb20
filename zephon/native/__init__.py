"""The compiled parts, each with a counterpart in Python that does the same, to the last bit, where they are missing."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

OFF = "0"


def compiled(name: str) -> Any:
    """Return the compiled module `name`; None where it wasn't built, or ZEPHON_NATIVE=0 is set."""
    if os.environ.get("ZEPHON_NATIVE") == OFF:
        return None
    try:
        return import_module(f"zephon.native.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"zephon.native.{name}":
            raise
        return None
