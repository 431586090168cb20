"""A session: micro-batches from a position on, pass after pass, and the state at each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from zephon.backends.protocol import Backend
from zephon.collate.host import HostBatch
from zephon.engine.engine import Counts
from zephon.engine.history import History
from zephon.engine.producer import Producer
from zephon.engine.setup import Setup, make_engine, prefetch
from zephon.formats.index import SourceIndex
from zephon.lanes.state import LaneState
from zephon.state.lane_codec import decode_lane, encode_lane
from zephon.topology import lanes_of


class Delivery(NamedTuple):
    """A micro-batch as `finish` made it, the sequences consumed before and after it (over all passes), the counts."""

    batch: Any
    start: int
    consumed: int
    counts: Counts


class Session(Protocol):
    """Gives a rank's micro-batches; one thread takes them, any may close."""

    def next(self) -> Delivery | None:
        """Return the next micro-batch; None at a pass's end, after which the next pass begins."""
        ...

    def lanes_at(self, consumed: int) -> dict[int, bytes]:
        """Return the rank's encoded lanes at a position still held. Raises StateError where it isn't."""
        ...

    def close(self) -> None:
        """Leave no thread, process or shared memory; may be called again."""
        ...


class ThreadSession:
    """Planner and assembly in a thread beside the trainer (or in its own, with prefetch 0).

    `finish` makes of a host batch what is delivered; it runs where the batch is made, because the trainer's
    thread would contend with that one for the interpreter. The backend is closed with the session.
    """

    def __init__(
        self, setup: Setup, indices: Mapping[str, SourceIndex], backend: Backend, finish: Callable[[HostBatch], Any]
    ) -> None:
        self._setup = setup
        self._finish = finish
        self._indices = indices
        self._backend = backend
        self._producer: Producer | None = None
        self._lanes = starting_states(setup)
        self._history = History(setup.consumed, self._lanes, setup.config.snapshots)
        self._consumed = setup.consumed
        into = setup.consumed if setup.length is None else setup.consumed % setup.length
        self._pass_start = setup.consumed - into
        # What the next micro-batch changes besides its own lanes: at a pass's beginning, all of them.
        self._turned: dict[int, LaneState] = {}
        if not into:
            self._turn()

    def next(self) -> Delivery | None:
        """Return the next micro-batch; None at a pass's end."""
        if self._producer is None:
            engine = make_engine(
                self._setup,
                self._indices,
                self._backend,
                position=self._consumed - self._pass_start,
                states=self._lanes,
            )
            self._producer = Producer(engine, self._finish, prefetch=prefetch(self._setup.config))
        produced = self._producer.take()
        if produced is None:
            self._producer.close()
            self._producer = None
            self._lanes = self._history.at(self._consumed)
            self._pass_start = self._consumed
            self._turn()
            return None
        start, self._consumed = self._consumed, self._pass_start + produced.position
        self._history.add(self._consumed, {**self._turned, **produced.changes})
        self._turned = {}
        return Delivery(produced.batch, start, self._consumed, produced.counts)

    def lanes_at(self, consumed: int) -> dict[int, bytes]:
        """Return the rank's encoded lanes at a position still held."""
        return {lane: encode_lane(state) for lane, state in self._history.at(consumed).items()}

    def close(self) -> None:
        """Close producer and backend."""
        # The backend first: it wakes a producer that waits for a page.
        self._backend.close()
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _turn(self) -> None:
        """Turn all lanes to the pass that begins here; the state at this very position is still that before it."""
        self._lanes = self._turned = next_pass(self._setup, self._lanes, self._consumed)


def starting_states(setup: Setup) -> dict[int, LaneState]:
    """Return the rank's lanes at `consumed`."""
    lanes = {lane: LaneState() for lane in lanes_of(setup.topology, setup.num_lanes)}
    lanes.update({lane: decode_lane(data, place=f"lane {lane}") for lane, data in setup.lanes.items() if lane in lanes})
    return lanes


def next_pass(setup: Setup, lanes: Mapping[int, LaneState], consumed: int) -> dict[int, LaneState]:
    """Return the lanes at the beginning of the pass that starts at `consumed`: only digests go on."""
    number = 0 if setup.config.restart or not setup.length else consumed // setup.length
    return {lane: LaneState(pass_number=number, digest=state.digest) for lane, state in lanes.items()}
