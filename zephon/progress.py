"""A progress bar for long work, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from rich.console import Console
from rich.progress import track as rich_track

Value = TypeVar("Value")


def track(values: Iterable[Value], description: str, *, visible: bool) -> Iterator[Value]:
    """Yield the values, with a bar on standard error while it is a terminal and `visible` is set."""
    if not visible or not sys.stderr.isatty():
        yield from values
        return
    total = len(values) if isinstance(values, Sized) else None
    yield from rich_track(values, description, total=total, console=Console(stderr=True), transient=True)
