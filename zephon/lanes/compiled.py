"""A lane whose mixer and packer are compiled: the same rows and states as Lane's, without an object a document."""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any, Protocol

from zephon.errors import StateError
from zephon.hashing import draw, key
from zephon.item import Item
from zephon.lanes.lane import Lane
from zephon.lanes.mixer import Pulled, check_quotas, entered
from zephon.lanes.protocol import Feed
from zephon.lanes.spec import LaneSpec, SourceSpec
from zephon.lanes.state import HeldState, LaneState, SourceState
from zephon.native import compiled

native = compiled("lane")
rows = compiled("rows")

KINDS = {"best_fit": False, "best_fit_split": True}
# It looks through the pool for each document; zephon.lanes.best_fit has an index of it.
MAX_POOL = 512
# Block ordinals are 64-bit integers there.
MAX_ORDINAL = 1 << 62
MAX_PART = 1 << 31


class PagesFeed(Feed, Protocol):
    """A Feed that gives pages too."""

    longest: int

    @property
    def long(self) -> str: ...

    memory: Any

    def open_pages(self, source: str, q: int, taken: int, block_hash: int, *, ahead: bool) -> Any: ...

    def missing(self) -> Any: ...


def make_lane(spec: LaneSpec, lane: int, feed: PagesFeed, *, state: LaneState, pulled: Pulled) -> Lane | CompiledLane:
    """Return a lane, compiled where that can be for its packer and state. Raises what check_state raises."""
    check_state(spec, lane, state)
    if native is not None and can_compile(spec, state.pass_number) and _fits(state):
        if feed.memory is None:
            feed.memory = rows.Memory()
        return CompiledLane(spec, lane, feed, state=state, pulled=pulled)
    return Lane(spec, lane, feed, state=state, pulled=pulled)


def check_state(spec: LaneSpec, lane: int, state: LaneState) -> None:
    """Raise StateError where a lane's state names what the plan hasn't, or documents that can't wait."""
    held = [item for part in state.operators for item in part.held]
    named = {source.name for source in state.sources} | {item.source for item in held}
    unknown = sorted(named - {source.name for source in spec.sources})
    what = f"sources {', '.join(unknown)}" if unknown else ""
    if not what and state.entry >= len(spec.entries):
        what = f"mixture entry {state.entry} of {len(spec.entries)}"
    for item in held:
        if not what and not 0 <= item.start < item.length:
            what = f"a document of {item.length} tokens that goes on at {item.start} (source {item.source})"
    if what:
        raise StateError(f"lane {lane}: its state has {what}; load the state as it was saved, with its own plan")


def _fits(state: LaneState) -> bool:
    """Return whether a state's numbers have room in 64 bits."""
    return all(
        max(source.next_k, source.pulls, source.bad, source.empty, *(taken for _, taken, _ in source.open))
        < MAX_ORDINAL
        for source in state.sources
    ) and all(
        max(item.q, item.sample, item.length) < MAX_ORDINAL and item.part < MAX_PART
        for part in state.operators
        for item in part.held
    )


def can_compile(spec: LaneSpec, pass_number: int) -> bool:
    """Return whether a compiled lane plans what `spec` says."""
    pack = spec.pack
    return (
        pack.kind in KINDS
        and pack.homogeneous == "none"
        and not pack.budgets
        and pack.pool <= MAX_POOL
        and not spec.operators
        and not any(spec.metadata.values())
        and all(source.base(pass_number + 1) < MAX_ORDINAL for source in spec.sources)
        and sys.byteorder == "little"
    )


class Snapshot:
    """A compiled lane between two sequences, to be made a LaneState of where somebody asks for it."""

    __slots__ = ("_digest", "_entry", "_held", "_names", "_pass_number", "_sequences", "_sources")

    def __init__(
        self, pass_number: int, sequences: int, entry: int, names: tuple[str, ...], sources: Any, held: bytes
    ) -> None:
        self._pass_number = pass_number
        self._sequences = sequences
        self._entry = entry
        self._names = names
        self._sources = sources
        self._held = held
        self._digest = b""

    def sealed(self, digest: bytes) -> Snapshot:
        """Return the snapshot with the lane's digest."""
        made = Snapshot(self._pass_number, self._sequences, self._entry, self._names, self._sources, self._held)
        made._digest = digest
        return made

    def lane_state(self) -> LaneState:
        """Return the lane's state."""
        sources = tuple(SourceState(name, passed, _numbers(numbers)) for name, passed, numbers in self._sources)
        held = tuple(
            Item(self._names[source], q, sample, part, start, length, (), block_hash)
            for source, q, sample, part, start, length, block_hash in struct.iter_unpack("<6qQ8x", self._held)
        )
        operators = (HeldState({}, held),)
        return LaneState(self._pass_number, self._sequences, self._entry, sources, operators, self._digest)


class CompiledLane:
    """Lane's counterpart. Its rows are zephon.native.rows.PlannedRow."""

    def __init__(self, spec: LaneSpec, lane: int, feed: PagesFeed, *, state: LaneState, pulled: Pulled) -> None:
        self._spec = spec
        self._lane = lane
        self._feed = feed
        self._pass_number = state.pass_number
        self._entry = state.entry
        self._names = tuple(source.name for source in spec.sources)
        self._state: LaneState | Snapshot = state
        self._dry = False
        self._cursors: dict[str, Any] = {}
        self._core = native.Lane(
            feed.memory,
            lane=lane,
            lanes=spec.lanes,
            sequences=state.sequences,
            capacity=spec.capacity,
            pool=spec.pack.pool,
            align=spec.pack.align,
            split=KINDS[spec.pack.kind],
            by_samples=spec.by_samples,
            longest=feed.longest,
            drops=feed.long == "drop",
            names=self._names,
            missing=feed.missing,
            without_documents=partial(check_quotas, spec, lane),
            pulled=pulled,
        )
        self._core.enter = self._move_on
        for held in state.operators[-1:]:
            for item in held.held:
                self._core.hold(item, self._names.index(item.source))
        if state.sources:
            kept = {source.name: source for source in state.sources}
            strides = spec.entries[self._entry].strides()
            for source in spec.sources:
                if source.name in kept:
                    cursor = self._cursor(source, kept[source.name])
                    if source.name in strides and cursor.passed is not None:
                        cursor.stride = strides[source.name]
            self._choose_active()
        else:
            self._enter(self._entry)

    @property
    def sequences(self) -> int:
        """How many sequences the lane has planned in this pass."""
        return int(self._core.sequences)

    def next(self) -> Any:
        """Return the next row; None where the lane is dry, whose state then stays what it was."""
        row = None if self._dry else self._core.next()
        if row is None:
            self._dry = True
        else:
            sources, held = self._core.state()
            self._state = Snapshot(self._pass_number, self._core.sequences, self._entry, self._names, sources, held)
        return row

    def state(self) -> LaneState | Snapshot:
        """Return the lane's state after its last row; the digest is left to the caller."""
        return self._state

    def close(self) -> None:
        """Give up all open blocks."""
        # A cycle otherwise, whose documents would wait for the collector.
        self._core.enter = None
        for cursor in self._cursors.values():
            cursor.close()

    def _move_on(self, sequence: int) -> None:
        entries = self._spec.entries
        while self._entry + 1 < len(entries) and (entries[self._entry + 1].start <= sequence or not self._core.active):
            self._enter(self._entry + 1)

    def _enter(self, entry: int) -> None:
        strides = self._spec.entries[entry].strides()
        for source in self._spec.sources:
            if source.name in strides and source.name not in self._cursors:
                self._cursor(source, None)
        passes = entered(
            self._spec,
            strides,
            {cursor.name: (cursor.passed or 0, cursor.stride) for cursor in self._core.active},
            {name: cursor.phase_draw for name, cursor in self._cursors.items()},
        )
        for name, cursor in self._cursors.items():
            cursor.passed, cursor.stride = passes.get(name), strides.get(name, cursor.stride)
        self._entry = entry
        self._choose_active()

    def _choose_active(self) -> None:
        self._cursors = {name: self._cursors[name] for name in sorted(self._cursors)}
        self._core.cursors = list(self._cursors.values())
        self._core.active = [c for c in self._cursors.values() if c.passed is not None and not c.used_up]
        following = self._spec.entries[self._entry + 1 :]
        self._core.next_entry = min(following[0].start, sys.maxsize) if following else sys.maxsize

    def _cursor(self, source: SourceSpec, state: SourceState | None) -> Any:
        spec, pass_number = self._spec, self._pass_number
        end = source.end(pass_number)
        cursor = native.Cursor(
            self._feed,
            self._feed.memory,
            source=self._names.index(source.name),
            name=source.name,
            key=key(spec.seed, "spread", source.name, self._lane, pass_number),
            phase_draw=draw(key(spec.seed, "phase", source.name, self._lane), pass_number),
            first=self._lane + source.base(pass_number),
            lanes=spec.lanes,
            end=-1 if end is None else end,
            spread=spec.spread,
            state=state,
        )
        self._cursors[source.name] = cursor
        return cursor


def lane_states(states: Mapping[int, LaneState | Snapshot]) -> dict[int, LaneState]:
    """Return lanes' states, whoever planned them."""
    return {lane: state.lane_state() if isinstance(state, Snapshot) else state for lane, state in states.items()}


def _numbers(numbers: bytes) -> tuple[int, ...]:
    head = struct.unpack_from("<4q", numbers)
    return head + tuple(number for block in struct.iter_unpack("<2qQ", numbers[32:]) for number in block)
