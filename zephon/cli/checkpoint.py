"""The states in a checkpoint that a training script wrote with torch.save, and which of them is meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zephon.errors import StateError
from zephon.state import check_state
from zephon.state.whole import FIELDS

# Of torch.save's archives, and of the pickles (by protocol) of its older format; no MessagePack of a state begins so.
BEGINNINGS = (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
BEGINNING_BYTES = 2
SHOWN = 8
CONTAINERS = (Mapping, list, tuple)


def split_place(path: Path) -> tuple[Path, str | None]:
    """Return the file and the place that FILE:place names; the place is None where the whole is a file's name."""
    text = str(path)
    colon = len(text)
    while not _is_file(Path(text[:colon])):
        colon = text.rfind(":", 0, colon)
        if colon < 1:
            return path, None
    return Path(text[:colon]), text[colon + 1 :] or None


def is_checkpoint(beginning: bytes) -> bool:
    """Return whether a file that begins so is one of torch.save."""
    return beginning.startswith(BEGINNINGS)


def choose_state(path: Path, place: str | None) -> dict[str, Any]:
    """Return the state at a place of a checkpoint; without a place the one that there is.

    Raises StoreError where the file can't be read, StateError where it can't be loaded, holds no state there, or
    several that differ and no place is given.
    """
    from zephon.collate.checkpoint import load_checkpoint  # torch, for those who have a checkpoint only

    if not _is_file(path):
        raise StateError(f"{path} is a pipe that holds a checkpoint; write it to a file, and pass that")
    found = dict(find_states(load_checkpoint(path)))
    if not found:
        raise StateError(
            f"{path} holds no state of Zephon's in its mappings and lists; save what loader.state_dict() returns "
            'with the model: torch.save({"model": …, "stream": loader.state_dict()}, …)'
        )
    if place is None:
        place, state = next(iter(found.items()))
        if any(_differ(other, state) for other in found.values()):
            raise StateError(
                f"{path} holds {len(found)} states, and they differ: {_places(found)}; choose one: {path}:{place}"
            )
    elif place not in found:
        raise StateError(f"{path} holds no state at {place!r}, only at {_places(found)}; choose one of these")
    try:
        check_state(found[place])
    except (StateError, RecursionError) as error:
        raise StateError(f"{path}{place and f':{place}'}: {error}") from error
    return dict(found[place])


def find_states(content: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (place, state) of what looks like a state in nested mappings and lists: "stream", "loaders[0].train"."""
    waiting: list[tuple[str, Any]] = [("", content)]
    seen: set[int] = set()
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, Mapping):
            if all(field in value for field in FIELDS):
                yield place, value
                continue
            inner = [(_inside(place, name), part) for name, part in value.items() if isinstance(part, CONTAINERS)]
        elif isinstance(value, list | tuple):
            inner = [(f"{place}[{i}]", part) for i, part in enumerate(value) if isinstance(part, CONTAINERS)]
        else:
            continue
        # A checkpoint may hold itself.
        if id(value) not in seen:
            seen.add(id(value))
            waiting += reversed(inner)


def _places(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the places of states and their positions."""
    shown = [f"{place or 'its top'} (consumed {state['consumed']})" for place, state in list(found.items())[:SHOWN]]
    more = len(found) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _inside(place: str, name: object) -> str:
    """Return the place of a mapping's value; names that dots or brackets would make another place are quoted."""
    if not isinstance(name, str) or any(sign in name for sign in ".[]"):
        return f"{place}[{name!r}]"
    return f"{place}.{name}" if place else name


def _differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    try:
        return bool(one != other)
    except (RuntimeError, ValueError):
        # Tensors or arrays in them, where a state has plain values.
        return True


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        # No leave to look, or too long a name: whoever opens it says so.
        return False
