"""Failures of stages as Zephon errors: the same text whichever backend ran them."""

from __future__ import annotations

import traceback

from zephon.errors import ConfigError, DataError, StateError, StoreError, ZephonError
from zephon.page import Order

CLOSED = "the backend is closed; no page can be taken from it: make a new loader"
KINDS: dict[str, type[ZephonError]] = {kind.__name__: kind for kind in (ConfigError, StateError, StoreError, DataError)}


def failed_order(error: BaseException, order: Order) -> ZephonError:
    """Return what `take` raises for an order whose `prepare` raised: a ZephonError as it is, others with the place.

    What the system caused (I/O, memory) becomes a StoreError, everything else a DataError. The
    original is its cause, for whoever wrote the stage.
    """
    if isinstance(error, ZephonError):
        return error
    kind = StoreError if isinstance(error, OSError | MemoryError) else DataError
    place = f"source {order.source}, block {order.block} of {order.location.path}"
    return caused(kind(f"{place}: {named(error)}"), error)


def failed_build(error: BaseException) -> ZephonError:
    """Return what `take` raises where a worker's stages couldn't be built."""
    if isinstance(error, ZephonError):
        return error
    kind = StoreError if isinstance(error, OSError | MemoryError) else ConfigError
    return caused(kind(f"a worker can't build its stages: {named(error)}"), error)


def named(error: BaseException) -> str:
    """Return an exception's type and text in one line that any encoding can carry."""
    text = " ".join(str(error).split())
    return printable(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def printable(text: str) -> str:
    """Return a text without lone surrogates (file names that aren't UTF-8), which no message can carry."""
    return text.encode("utf-8", "backslashreplace").decode()


def caused(made: ZephonError, error: BaseException) -> ZephonError:
    """Set an error's cause, as `raise made from error` does, where it is raised only later."""
    made.__cause__ = error
    return made


def dismantle(error: ZephonError) -> tuple[str, str, tuple[str, ...]]:
    """Return kind, text and notes of an error, to be sent; a user's own subclass goes as the kind it is of.

    The traceback of its cause goes as a note: shown below a traceback, never part of the one line.
    """
    kind = next((name for name, known in KINDS.items() if isinstance(error, known)), "DataError")
    notes = list(getattr(error, "__notes__", ()))
    if error.__cause__ is not None:
        notes.append("".join(traceback.format_exception(error.__cause__)).rstrip())
    return kind, printable(str(error)), tuple(map(printable, notes))


def assemble(kind: str, text: str, notes: tuple[str, ...]) -> ZephonError:
    """Return the error that `dismantle` took apart."""
    error = KINDS[kind](text)
    for note in notes:
        error.add_note(note)
    return error
