"""The planner, told lengths alone, makes the rows that the page defines; its state is all that it remembers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Lane as OracleLane
from oracle_plan import Plan
from plans import Case, cases
from profiles import examples
from recorded import RecordedFeed, pieces_of, spec_of

from zephon.lanes.lane import Lane
from zephon.lanes.state import LaneState
from zephon.state.lane_codec import decode_lane, encode_lane

ROWS = 12


def oracle_rows(plan: Plan, lane: int, number: int, count: int) -> list:
    """Return the pieces of a lane's first `count` rows, None where it is dry."""
    source = OracleLane(plan, lane, number)
    rows = [source.row() for _ in range(count)]
    return [None if row is None else [piece.reference for piece in row] for row in rows]


@settings(max_examples=examples(150))
@given(case=cases(epochs=True), lane=st.integers(0, 11), look=st.integers(0, 3))
def test_recorded_lengths_alone_make_the_same_rows(case: Case, lane: int, look: int) -> None:
    plan, spec = case.plan, spec_of(case.plan)
    lane %= plan.lanes
    planner = Lane(spec, lane, RecordedFeed(plan, spec, look))
    rows = []
    for _ in range(ROWS):
        rows.append(pieces_of(planner.next()))
        planner.state()
    assert rows == oracle_rows(plan, lane, 0, ROWS)


@settings(max_examples=examples(150))
@given(
    case=cases(epochs=True),
    lane=st.integers(0, 11),
    stops=st.lists(st.booleans(), min_size=ROWS, max_size=ROWS),
    number=st.integers(0, 3),
)
def test_a_restored_lane_goes_on_as_if_never_stopped(case: Case, lane: int, stops: list[bool], number: int) -> None:
    plan, spec = case.plan, spec_of(case.plan)
    lane %= plan.lanes
    straight = Lane(spec, lane, RecordedFeed(plan, spec, 0), state=LaneState(pass_number=number))
    stopped = Lane(spec, lane, RecordedFeed(plan, spec, 0), state=LaneState(pass_number=number))
    rows = []
    for stop in stops:
        if stop:
            data = encode_lane(stopped.state())
            stopped = Lane(spec, lane, RecordedFeed(plan, spec, 2), state=decode_lane(data))
        rows.append(pieces_of(stopped.next()))
        straight.next()
        # Equal bytes, not just equal rows: nothing about having been stopped may stay behind.
        assert encode_lane(stopped.state()) == encode_lane(straight.state())
    assert rows == oracle_rows(plan, lane, number, ROWS)
