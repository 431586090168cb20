"""A lane and its cursors: every sample once an epoch, and a request without a sequence that leaves no trace."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lane_items import corpus, lane_of, plan
from oracle_plan import Plan
from recorded import RecordedBlock, RecordedFeed, spec_of

from zephon.lanes.lane import Lane
from zephon.lanes.state import LaneState
from zephon.state import encode_lane


def references(made: Plan, lane: int, count: int, *, pass_number: int = 0) -> list[tuple[int, int]]:
    """Return (q, sample) of the first `count` documents of a lane, or as many as it has."""
    planner = lane_of(made, lane=lane, state=LaneState(pass_number=pass_number))
    found = []
    for _ in range(count):
        row = planner.next()
        planner.state()
        if row is None:
            break
        found += [(span.item.q, span.item.sample) for span in row.spans]
    return found


@pytest.mark.parametrize("lanes", [1, 3, 4, 7, 20])
@pytest.mark.parametrize("spread", [1, 4])
def test_every_sample_once_an_epoch_over_all_lanes(lanes: int, spread: int) -> None:
    blocks = [[9] * size for size in (3, 1, 4, 1, 5, 9, 2)]
    made = replace(plan({"web": corpus(blocks, epochs=3)}), lanes=lanes, spread=spread)
    spec = spec_of(made).sources[0]
    seen: dict[tuple[int, int, int], int] = {}
    for lane in range(lanes):
        for q, sample in references(made, lane, 1000):
            epoch, block, _ = spec.place(made.seed, q)
            seen[epoch, block, sample] = seen.get((epoch, block, sample), 0) + 1
    every = {(epoch, block, sample) for epoch in range(3) for block in range(7) for sample in range(len(blocks[block]))}
    assert seen == dict.fromkeys(every, 1)


def test_a_lane_s_blocks_are_those_of_its_ordinals() -> None:
    made = replace(plan({"web": corpus([[9] * 2] * 10)}), lanes=4)
    for lane in range(4):
        assert {q % 4 for q, _ in references(made, lane, 40)} == {lane}


def test_passes_of_a_finite_stream_go_on_with_the_epochs() -> None:
    made = plan({"web": corpus([[9] * 2] * 5, epochs=2)})
    for number in range(3):
        ordinals = [q for q, _ in references(made, 0, 100, pass_number=number)]
        assert sorted(set(ordinals)) == list(range(10 * number, 10 * number + 10))


class WatchedFeed(RecordedFeed):
    """Counts readers that are open."""

    def __init__(self, made: Plan, look: int) -> None:
        super().__init__(made, spec_of(made), look)
        self.readers: set[int] = set()
        self.most = 0

    def open(self, source: str, q: int, taken: int, block_hash: int, *, ahead: bool) -> RecordedBlock:
        reader = super().open(source, q, taken, block_hash, ahead=ahead)
        self.readers.add(id(reader))
        self.most = max(self.most, len(self.readers))
        reader.close = lambda: self.readers.discard(id(reader))  # type: ignore[method-assign]
        return reader


@pytest.mark.parametrize("look", [0, 1, 3])
def test_open_blocks_are_bounded_and_all_are_closed(look: int) -> None:
    made = plan({"a": corpus([[9] * 3] * 9), "b": corpus([[9] * 3] * 9)})
    feed = WatchedFeed(made, look)
    lane = Lane(spec_of(made), 0, feed)
    for _ in range(50):
        lane.next()
    # At least one ahead near a block's end, and with a reserve as many as are open.
    assert 2 * (made.spread + max(1, look)) <= feed.most <= 2 * (made.spread + max(made.spread, look))
    lane.close()
    assert not feed.readers


@pytest.mark.parametrize("kind", ["best_fit", "best_fit_split", "first_fit", "concat", "pad"])
@pytest.mark.parametrize("shuffles", [(), (3, 2)])
def test_a_request_without_a_sequence_leaves_the_state_as_it_was(kind: str, shuffles: tuple[int, ...]) -> None:
    # The last samples have no documents: asking once more reads them, and must not count them.
    blocks = [[9, 4, 7], [3, 9, 2], [0, 0, 0, 0], [0, 0]]
    made = replace(plan({"web": corpus(blocks, epochs=1)}), kind=kind, shuffles=shuffles, pool=3, spread=1)
    lane = lane_of(made)
    planned = 0
    before = encode_lane(lane.state())
    while lane.next() is not None:
        before, planned = encode_lane(lane.state()), planned + 1
    assert planned > 2
    assert encode_lane(lane.state()) == before
    assert lane.next() is None
    assert encode_lane(lane.state()) == before
    again = lane_of(made, state=lane.state())
    assert again.next() is None
    assert encode_lane(again.state()) == before


def test_a_lane_that_never_had_a_sequence_has_the_state_of_one_not_begun() -> None:
    lane = lane_of(plan({"web": corpus([[0, 0], [0]], epochs=1)}))
    assert lane.next() is None
    assert lane.state() == LaneState()


def test_a_lane_without_a_block_is_dry() -> None:
    made = replace(plan({"web": corpus([[9]], epochs=1)}), lanes=3)
    assert len(references(made, 0, 9)) == 1
    assert references(made, 1, 9) == references(made, 2, 9) == []


def test_states_are_immutable_snapshots() -> None:
    lane = lane_of(plan({"web": corpus([[9, 5, 3]] * 4)}))
    lane.next()
    kept = lane.state()
    encoded = encode_lane(kept)
    for _ in range(20):
        lane.next()
        lane.state()
    assert encode_lane(kept) == encoded
    assert (kept.sequences, lane.sequences) == (1, 21)
