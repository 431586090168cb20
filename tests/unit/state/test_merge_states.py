"""Whole states: joined strictly, checked before use, and told apart by one digest."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from zephon.errors import StateError
from zephon.lanes.state import LaneState
from zephon.state import check_state, encode_lane, make_state, merge_states, stream_digest

PLAN = {"version": 1, "lanes": 4, "seed": 7, "sources": {"web": {"blocks": 9}}}


def lane(number: int, sequences: int = 2) -> bytes:
    return encode_lane(LaneState(sequences=sequences, digest=bytes([number]) * 16))


def state(*lanes: int, **changes: Any) -> dict[str, Any]:
    return make_state(PLAN, 8, {number: lane(number) for number in lanes}) | changes


def test_parts_in_any_order_make_one_whole() -> None:
    whole = state(0, 1, 2, 3)
    assert merge_states([state(2), state(0, 3), state(1)]) == whole
    assert list(merge_states([state(3), state(1), state(2), state(0)])["lanes"]) == ["0", "1", "2", "3"]
    assert merge_states([whole]) == whole


def test_merging_changes_none_of_its_parts() -> None:
    parts = [state(0), state(1, 2, 3)]
    merged = merge_states(parts)
    assert parts == [state(0), state(1, 2, 3)]
    merged["lanes"]["0"] = b""
    assert parts == [state(0), state(1, 2, 3)]


def test_lanes_that_several_ranks_hold_must_agree() -> None:
    assert merge_states([state(0, 1), state(1, 0), state(2, 3)]) == state(0, 1, 2, 3)
    other = state(1, lanes={"1": lane(1, sequences=3)})
    with pytest.raises(StateError, match=r"^lane 1 differs between state 1 and one before it; they are of different"):
        merge_states([state(0, 1), other])


def test_positions_must_match() -> None:
    with pytest.raises(StateError, match=r"consumed=8 and 12; take state_dict\(consumed=N\) with one N on all ranks$"):
        merge_states([state(0), state(1, consumed=12)])


def test_plans_must_match_and_differences_are_named() -> None:
    other = state(1, plan={**PLAN, "seed": 8, "sources": {"web": {"blocks": 10}}})
    with pytest.raises(StateError) as caught:
        merge_states([state(0), other])
    assert str(caught.value).startswith("states 0 and 1 are of different plans: ")
    assert "seed is 7 in the state and 8 here" in str(caught.value)
    assert "sources.web.blocks is 9 in the state and 10 here" in str(caught.value)


def test_there_must_be_a_state() -> None:
    with pytest.raises(StateError, match="no states to merge"):
        merge_states([])


DAMAGED: list[tuple[Any, str]] = [
    (None, "a state is a mapping, not NoneType; pass what state_dict"),
    ([], "not list"),
    ({}, "has no version, plan, consumed, lanes"),
    ({"version": 1, "plan": PLAN}, r"has no consumed, lanes \(it has: version, plan\)"),
    (state(version=2), "state of version 2, this release reads 1"),
    (state(version=None), "state of version None"),
    (state(consumed=-1), "consumed=-1 is no number of sequences; load an earlier checkpoint"),
    (state(consumed="8"), "consumed='8' is no number"),
    (state(consumed=True), "consumed=True is no number"),
    (state(consumed=8.0), "consumed=8.0 is no number"),
    (state(consumed=1 << 70), "consumed=1180591620717411303424 is no number"),
    (state(plan=None), "plan is damaged; load an earlier checkpoint"),
    (state(plan={"lanes": 0}), "plan is damaged"),
    (state(plan={"lanes": "4"}), "plan is damaged"),
    (state(plan={"lanes": True}), "plan is damaged"),
    (state(plan={"lanes": 1 << 40}), "plan is damaged"),
    (state(lanes=[]), "lanes are damaged"),
    (state(lanes={0: b""}), "has a lane 0, its plan lanes 0..3"),
    (state(lanes={"4": b""}), "has a lane '4', its plan lanes 0..3"),
    (state(lanes={"-1": b""}), "has a lane '-1'"),
    (state(lanes={"00": b""}), "has a lane '00'"),
    (state(lanes={"x": b""}), "has a lane 'x'"),
]


@pytest.mark.parametrize(("value", "message"), DAMAGED, ids=[message for _, message in DAMAGED])
def test_what_is_no_state_is_refused_in_one_line(value: Any, message: str) -> None:
    for check in (check_state, lambda value: merge_states([value]), stream_digest):
        with pytest.raises(StateError, match=message) as caught:
            check(value)
        assert "\n" not in str(caught.value)


def test_the_digest_needs_every_lane() -> None:
    with pytest.raises(StateError, match=r"lacks 2 of 4 lanes \(1 …\); merge_states of all ranks first"):
        stream_digest(state(0, 3))
    with pytest.raises(StateError, match=r"^lane 2: .* damaged or cut short"):
        stream_digest(state(0, 1, 2, 3, lanes={**state(0, 1, 2, 3)["lanes"], "2": lane(2)[:-1]}))


def test_the_digest_is_of_position_lanes_and_all_that_was_delivered() -> None:
    first = stream_digest(state(0, 1, 2, 3))
    assert len(bytes.fromhex(first)) == 16
    moved = state(0, 1, 2, 3, consumed=9)
    other = encode_lane(replace(LaneState(sequences=2), digest=b"x" * 16))
    changed = state(0, 1, 2, 3, lanes={**state(0, 1, 2, 3)["lanes"], "3": other})
    assert len({first, stream_digest(moved), stream_digest(changed)}) == 3
    # Where a lane stands is no part of it, and neither are settings.
    ahead = state(0, 1, 2, 3, plan={**PLAN, "seed": 1}, lanes={str(n): lane(n, sequences=5) for n in range(4)})
    assert stream_digest(ahead) == first
