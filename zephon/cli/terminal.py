"""What the commands print: tables on stdout, a progress bar on a terminal's stderr."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import IO, TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

# Wide enough for every table, so that a file or a pipe gets lines that don't depend on a window.
WIDTH_OF_FILES = 200
BLANKS = re.compile(r" +$", re.MULTILINE)

Advance = Callable[[int], None]


def stdout() -> Console:
    """Return the console that results go to."""
    # Names and paths hold [brackets] and :colons: that mean nothing.
    if sys.stdout.isatty():
        return Console(highlight=False, markup=False, emoji=False)
    file = cast("IO[str]", _Trimmed(sys.stdout))
    return Console(highlight=False, markup=False, emoji=False, width=WIDTH_OF_FILES, file=file)


class _Trimmed:
    """Writes to a file without the blanks that fill a table's lines."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        # A console writes whole lines at once.
        self._file.write(BLANKS.sub("", text))
        return len(text)

    def flush(self) -> None:
        self._file.flush()


def table(*columns: str, title: str | None = None, left: Iterable[str] = ()) -> Table:
    """Return an empty table: numbers to the right, except in the first column and those named in `left`."""
    result = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    to_left = {columns[0], *left}
    for column in columns:
        result.add_column(column, justify="left" if column in to_left else "right", overflow="fold")
    return result


def facts(pairs: Iterable[tuple[str, str]]) -> Table:
    """Return a table of names and values without a head."""
    result = Table(box=None, pad_edge=False, show_header=False)
    for name, value in pairs:
        result.add_row(name, value)
    return result


@contextmanager
def progress(description: str, total: int | None) -> Iterator[Advance]:
    """Give a function that moves a progress bar on by some steps; it draws on a terminal only."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(description, total=total)
        yield lambda steps: bar.advance(task, steps)


def number(value: float) -> str:
    """Return a count with thousands separated."""
    return f"{value:,.0f}"


def counted(value: int, noun: str) -> str:
    """Return a count with its noun, in the plural unless it is 1."""
    return f"{number(value)} {noun}" if value == 1 else f"{number(value)} {noun}s"


def note(line: str) -> None:
    """Print a line on standard error, beside the results."""
    sys.stderr.write(line + "\n")


def share(part: float, whole: float) -> str:
    """Return a part as a percentage of the whole, `-` where there is none."""
    return f"{100 * part / whole:.2f} %" if whole else "-"


def size(num_bytes: float) -> str:
    """Return bytes in the largest binary unit that leaves at least 1."""
    if num_bytes < 1024:
        return f"{num_bytes:.0f} B"
    value, rest = num_bytes / 1024, ["KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(rest) > 1:
        value, rest = value / 1024, rest[1:]
    return f"{value:.1f} {rest[0]}"
