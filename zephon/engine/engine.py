"""The engine: a rank's rows, planned ahead in order, made into micro-batches with their states."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from zephon.collate.host import HostBatch
from zephon.engine.assemble import Assembler, chain
from zephon.engine.feed import PageFeed
from zephon.engine.materialise import Materialiser
from zephon.engine.work import WorkOf
from zephon.errors import DataError, ZephonError
from zephon.item import Item, Row
from zephon.lanes.compiled import CompiledLane, Snapshot, make_lane
from zephon.lanes.lane import Lane
from zephon.lanes.mixer import Pulled
from zephon.lanes.spec import LaneSpec
from zephon.lanes.state import HeldState, LaneState
from zephon.topology import Topology, first_row, lanes_of


class Counts(NamedTuple):
    """What a rank was given since the engine was made: by source, and in all; `work` of the last micro-batch alone.

    work  (tokens, images, patches, cost, broken images) of each row that was planned, in streams with images or costs
    """

    rows: int
    tokens: int
    documents: int
    pulled: dict[str, int]
    delivered: dict[str, int]
    work: tuple[tuple[int, int, int, int, int], ...] = ()


class Produced(NamedTuple):
    """A micro-batch, the position after it, the states of the lanes it changed, and the counts up to it."""

    host: HostBatch
    position: int
    changes: dict[int, LaneState | Snapshot]
    counts: Counts


class _Planned(NamedTuple):
    sequence: int
    row: Any
    state: LaneState | Snapshot | None
    fetches: list[tuple[int, list[Item]]]
    failure: ZephonError | None


class Engine:
    """Makes a rank's micro-batches of one pass, from `position` (in the pass) on.

    Rows are planned one after another and up to `plan_ahead` before they are made, so that documents which
    have to be read again are under way. A failure comes out at the micro-batch it belongs to, never earlier.
    """

    def __init__(
        self,
        spec: LaneSpec,
        feed: PageFeed,
        topology: Topology,
        *,
        micro_batch_size: int,
        pad_id: int,
        position: int,
        length: int | None,
        states: Mapping[int, LaneState],
        plan_ahead: int,
        materialiser: Materialiser | None = None,
    ) -> None:
        self._spec = spec
        self._feed = feed
        self._topology = topology
        self._micro_batch_size = micro_batch_size
        self._pad_id = pad_id
        self._position = position
        self._length = length
        self._plan_ahead = plan_ahead
        self._materialiser = materialiser
        self._work = WorkOf(spec.metadata)
        self._states = {lane: states.get(lane, LaneState()) for lane in lanes_of(topology, spec.lanes)}
        self._digests = {lane: state.digest for lane, state in self._states.items()}
        self._lanes: dict[int, Lane | CompiledLane] = {}
        self._planned: deque[_Planned] = deque()
        self._pulled = Pulled()
        self._rows = self._tokens = self._documents = 0
        self._delivered: Counter[str] = Counter()
        # A rank's lanes hold the rows ≡ r (mod R), or, where several ranks share a lane, those of the lane.
        self._step = min(topology.dp_size, spec.lanes)
        self._next = first_row(position, topology.dp_rank % self._step, self._step)

    def produce(self) -> Produced | None:
        """Return the next micro-batch; None at the end of a finite stream's pass."""
        if self._length is not None and self._position >= self._length:
            return None
        size, rank = self._topology.dp_size, self._topology.dp_rank
        stop = self._position + size * self._micro_batch_size
        has_images = self._materialiser is not None
        assembler = Assembler(self._micro_batch_size, self._spec.capacity, self._pad_id, images=has_images)
        work: list[tuple[int, int, int, int, int]] = []
        changes: dict[int, LaneState | Snapshot] = {}
        while True:
            while len(self._planned) < self._plan_ahead and not (self._planned and self._planned[-1].failure):
                if not self._rows and self._next >= stop:
                    # The first micro-batch doesn't wait for pages of rows after it.
                    break
                self._planned.append(self._plan())
            if not self._planned or self._planned[0].sequence >= stop:
                break
            planned = self._planned[0]
            if planned.failure is not None:
                raise planned.failure
            self._planned.popleft()
            if planned.fetches:
                self._read_again(planned, stop)
            if planned.sequence % size == rank:
                digest = assembler.add(planned.sequence, planned.row)
                broken = 0
                if self._materialiser is not None:
                    decoded = self._materialiser.take(planned.sequence)
                    assembler.attach(decoded)
                    broken = sum(each.broken for each in decoded)
                if self._work.declared and planned.row is not None:
                    work.append((*self._work.of(planned.row), broken))
            else:
                # Another rank's row of a shared lane: its digest is part of the lane's.
                other = Assembler(1, self._spec.capacity, self._pad_id, images=has_images)
                digest = other.add(planned.sequence, planned.row)
            if planned.state is not None:
                number = planned.sequence % self._spec.lanes
                if digest is not None:
                    self._digests[number] = chain(self._digests[number], digest)
                changes[number] = planned.state.sealed(self._digests[number])
        self._position = stop if self._length is None else min(stop, self._length)
        self._rows += self._micro_batch_size
        self._tokens += assembler.tokens
        self._documents += assembler.documents
        self._delivered.update(assembler.delivered)
        counts = Counts(
            self._rows, self._tokens, self._documents, dict(self._pulled), dict(self._delivered), tuple(work)
        )
        return Produced(assembler.finish(), self._position, changes, counts)

    def close(self) -> None:
        """Drop all that is planned and ordered; the backend stays open."""
        for planned in self._planned:
            for ticket, _ in planned.fetches:
                self._feed.backend.drop(ticket)
        self._planned.clear()
        if self._materialiser is not None:
            self._materialiser.close()
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()

    def _plan(self) -> _Planned:
        sequence = self._next
        self._next = sequence + self._step
        if self._length is not None and sequence >= self._length:
            self._order_images(sequence, None)
            return _Planned(sequence, None, None, [], None)
        try:
            lane = self._lane(sequence)
            row = lane.next()
            state = lane.state()
            fetches = self._fetch(row)
            if not fetches:
                self._order_images(sequence, row)
            return _Planned(sequence, row, state, fetches, None)
        except ZephonError as error:
            return _Planned(sequence, None, None, [], error)
        except Exception as error:  # noqa: BLE001 - raised by produce when the sequence is due, with its place
            named = f"{type(error).__name__}: {' '.join(str(error).split())}"
            failure = DataError(
                f"planning sequence {sequence} (lane {sequence % self._spec.lanes}) raised {named}; "
                "mend the operator or packer that the cause points to"
            )
            failure.__cause__ = error
            return _Planned(sequence, None, None, [], failure)

    def _order_images(self, sequence: int, row: Row | None) -> None:
        """Order the images of one of this rank's own rows."""
        if self._materialiser is not None and sequence % self._topology.dp_size == self._topology.dp_rank:
            self._materialiser.add(sequence, row)

    def _read_again(self, first: _Planned, stop: int) -> None:
        """Fill in the documents of a row that were read again, and with images those of all rows before `stop`.

        So that the images of a micro-batch after a resume are all under way before the first is waited for.
        """
        due = [first]
        if self._materialiser is not None:
            due += [planned for planned in self._planned if planned.fetches and planned.sequence < stop]
        for planned in due:
            while planned.fetches:
                ticket, items = planned.fetches.pop(0)
                self._feed.fill(ticket, items)
            self._order_images(planned.sequence, planned.row)

    def _lane(self, sequence: int) -> Lane | CompiledLane:
        """Return the lane of a sequence; lanes that come next are opened too, so that their pages are ordered."""
        number = sequence % self._spec.lanes
        if number not in self._lanes:
            ahead = self._plan_ahead if self._rows else min(self._plan_ahead, self._micro_batch_size)
            for later in range(sequence, sequence + self._step * ahead, self._step):
                upcoming = later % self._spec.lanes
                if upcoming not in self._lanes:
                    state = with_payloads(self._states[upcoming], self._feed)
                    self._lanes[upcoming] = make_lane(
                        self._spec, upcoming, self._feed, state=state, pulled=self._pulled
                    )
        return self._lanes[number]

    def _fetch(self, row: Any) -> list[tuple[int, list[Item]]]:
        """Order the documents of a row that aren't in memory, by block."""
        if row is None or not self._feed.num_missing:
            return []
        blocks: dict[tuple[str, int], list[Item]] = {}
        for item in unread(row):
            payload = item.payload
            if payload is not None and not payload.ordered:
                payload.ordered = True
                blocks.setdefault((item.source, item.q), []).append(item)
        return [
            (self._feed.order_again(source, q, list(dict.fromkeys(item.sample for item in items))), items)
            for (source, q), items in blocks.items()
        ]


def unread(row: Any) -> list[Item]:
    """Return the documents of a planned row whose tokens aren't in memory."""
    if isinstance(row, Row):
        items = [span.item for span in row.spans]
        return [item for item in items if item.payload is not None and item.payload.tokens is None]
    found: list[Item] = row.unread(Item)
    return found


def with_payloads(state: LaneState, feed: PageFeed) -> LaneState:
    """Give restored items an empty payload each, to be filled when their row is due."""
    operators = tuple(
        HeldState(part.state, tuple(replace(item, payload=feed.missing(), place=0) for item in part.held))
        for part in state.operators
    )
    return replace(state, operators=operators)
