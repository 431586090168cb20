"""States of sources in words, whatever their layout."""

from __future__ import annotations

from zephon.lanes.state import SourceState

Open = tuple[tuple[int, int, int], ...]


def source_state(
    name: str, passed: int | None, *, next_k: int, pulls: int, empty: int = 0, bad: int = 0, blocks: Open = ()
) -> SourceState:
    """Return a source's place; `blocks` are (k, samples taken, block hash)."""
    return SourceState(name, passed, (next_k, pulls, bad, empty, *(number for block in blocks for number in block)))
