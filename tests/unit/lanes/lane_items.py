"""Items and rows in few words."""

from __future__ import annotations

from oracle_plan import Corpus, Doc, Plan
from recorded import RecordedFeed, spec_of

from zephon.item import Item, Row
from zephon.lanes.lane import Lane
from zephon.lanes.protocol import Packer
from zephon.lanes.state import LaneState


def item(sample: int, length: int, *, start: int = 0, source: str = "web", group: int = 0) -> Item:
    """Return a document of `length` tokens; its sample's number is its name."""
    return Item(source, 0, sample, 0, start, length, (group,))


def pushed(packer: Packer, *lengths: int) -> Packer:
    """Push documents 0, 1, 2, … of these lengths."""
    for sample, length in enumerate(lengths):
        packer.push(item(sample, length))
    return packer


def placed(row: Row | None) -> list[tuple[int, int, int, int]] | None:
    """Return (sample, start, stop, offset) of each piece."""
    return None if row is None else [(s.item.sample, s.start, s.stop, s.offset) for s in row.spans]


def corpus(blocks: list[list[int]], *, epochs: int | None = None, mean_tokens: int = 1) -> Corpus:
    """Return a source of blocks given by the lengths of their samples' documents; 0: a sample without one."""
    made = tuple(tuple(() if not size else (Doc(tokens=tuple(range(size))),) for size in block) for block in blocks)
    return Corpus(blocks=made, mean_tokens=mean_tokens, epochs=epochs)


def plan(sources: dict[str, Corpus], *, entries: list[tuple[int, dict[str, str | float]]] | None = None) -> Plan:
    """Return a plan of one lane and rows of one document each, so that rows show what was pulled."""
    mixture = entries or [(0, dict.fromkeys(sources, 1))]
    return Plan(seed=3, lanes=1, sequence_length=9, sources=sources, entries=tuple(mixture), kind="pad")


def lane_of(plan: Plan, *, lane: int = 0, state: LaneState | None = None, look: int = 0) -> Lane:
    """Return a lane over recorded lengths."""
    spec = spec_of(plan)
    return Lane(spec, lane, RecordedFeed(plan, spec, look), state=state)
