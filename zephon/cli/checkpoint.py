"""The states in a checkpoint that a training script wrote with torch.save, and which of them is meant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zephon.errors import StateError
from zephon.state import check_state
from zephon.state.whole import FIELDS

# The beginnings of torch.save's archives and of its older format; no MessagePack of a state begins so.
BEGINNINGS = (b"PK", b"\x80\x02")
SHOWN = 8


def split_place(path: Path) -> tuple[Path, str | None]:
    """Return the file and the place that FILE:place names; the place is None where the whole is a file's name."""
    text = str(path)
    colon = len(text)
    while not Path(text[:colon]).is_file():
        colon = text.rfind(":", 0, colon)
        if colon < 1:
            return path, None
    return Path(text[:colon]), text[colon + 1 :] or None


def choose_state(path: Path, place: str | None) -> dict[str, Any]:
    """Return the state at a place of a checkpoint; without a place the one that there is.

    Raises StoreError where the file can't be read, StateError where it can't be loaded, holds no state there, or
    several that differ and no place is given.
    """
    from zephon.collate.checkpoint import load_checkpoint  # torch, for those who have a checkpoint only

    found = dict(find_states(load_checkpoint(path)))
    if not found:
        raise StateError(
            f"{path} holds no state of Zephon's in its mappings and lists; save what loader.state_dict() returns "
            'with the model: torch.save({"model": …, "stream": loader.state_dict()}, …)'
        )
    if place is None:
        place, state = next(iter(found.items()))
        if any(other != state for other in found.values()):
            raise StateError(
                f"{path} holds {len(found)} states, and they differ: {_places(found)}; choose one: {path}:{place}"
            )
    elif place not in found:
        raise StateError(f"{path} holds no state at {place!r}, only at {_places(found)}; choose one of these")
    try:
        check_state(found[place])
    except StateError as error:
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
            inner = [(f"{place}.{name}" if place else str(name), part) for name, part in value.items()]
        elif isinstance(value, list | tuple):
            inner = [(f"{place}[{i}]", part) for i, part in enumerate(value)]
        else:
            continue
        # A checkpoint may hold itself.
        if id(value) not in seen:
            seen.add(id(value))
            waiting += reversed(inner)


def _places(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the places of states and their positions."""
    shown = [f"{place} (consumed {state['consumed']})" for place, state in list(found.items())[:SHOWN]]
    more = len(found) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
