"""Does a state's every lane stand where the state's position says?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from zephon.errors import StateError
from zephon.lanes.state import LaneState
from zephon.state.lane_codec import decode_lane
from zephon.topology import rows_before


def check_lanes(state: Mapping[str, Any], lanes: Iterable[int], plan: Mapping[str, Any]) -> dict[int, bytes]:
    """Return the encoded lanes of a rank, out of a checked state.

    Raises StateError where one is missing, damaged, at another position than `consumed`, or in a mixture or a
    source that the plan doesn't have.
    """
    mine: dict[int, bytes] = {}
    for lane in lanes:
        data = state["lanes"].get(str(lane))
        if data is None:
            raise StateError(
                f"the state lacks lane {lane}, which this rank needs (it has {len(state['lanes'])} of "
                f"{plan['lanes']}); "
                "merge_states of all ranks first"
            )
        decoded = decode_lane(data, place=f"lane {lane}")
        _check_position(decoded, lane, state["consumed"], plan)
        _check_entry(decoded, lane, state["plan"], plan)
        mine[lane] = data
    return mine


def _check_position(lane: LaneState, number: int, consumed: int, plan: Mapping[str, Any]) -> None:
    length = plan["length"]
    position, number_of_pass = consumed, 0
    if length is not None:
        number_of_pass, position = divmod(consumed, length)
        if position == 0 and consumed and (lane.sources or lane.sequences):
            # At a pass's end a lane may not have turned to the next one yet.
            number_of_pass, position = number_of_pass - 1, length
        if plan["restart"]:
            number_of_pass = 0
    due = rows_before(position, number, plan["lanes"])
    # A lane of a finite stream may have run dry before; it then holds nothing.
    wrong = lane.sequences > due or (lane.sequences < due and (length is None or _holds(lane)))
    if wrong or (lane.sequences and lane.pass_number != number_of_pass):
        raise StateError(
            f"lane {number} has {lane.sequences} sequences of pass {lane.pass_number}, but consumed={consumed} means "
            f"{due} of pass {number_of_pass}; the state's parts are of different moments"
        )


def _holds(lane: LaneState) -> bool:
    """Return whether documents wait in a lane that were not delivered (an edge token was)."""
    edges = sum(
        1 for part in lane.operators for name, value in part.state.items() if name.endswith("edge") and value == 1
    )
    return sum(item.length - item.start for part in lane.operators for item in part.held) > edges


def _check_entry(lane: LaneState, number: int, saved: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """A lane whose sources were used up took later mixtures early: these can't change any more."""
    taken = lane.entry + 1
    if saved["mix"]["entries"][:taken] != plan["mix"]["entries"][:taken]:
        raise StateError(
            f"lane {number} is in mixture {lane.entry} of mix.schedule already, and that differs here; restore it"
        )
    strangers = [source.name for source in lane.sources if source.name not in plan["sources"]]
    if strangers:
        raise StateError(f"lane {number} holds a place in source {strangers[0]}, which isn't configured; restore it")
