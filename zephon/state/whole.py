"""The whole state: one mapping without ranks, `{"version", "plan", "consumed", "lanes"}`, of plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from zephon.errors import StateError
from zephon.state.check import differences
from zephon.state.lane_codec import decode_lane

STATE_VERSION = 1
FIELDS = ("version", "plan", "consumed", "lanes")
MAX_CONSUMED = 1 << 63
MAX_LANES = 1 << 31


def make_state(plan: Mapping[str, Any], consumed: int, lanes: Mapping[int, bytes]) -> dict[str, Any]:
    """Return the state of these lanes at `consumed` sequences."""
    return {
        "version": STATE_VERSION,
        "plan": dict(plan),
        "consumed": consumed,
        "lanes": {str(lane): lanes[lane] for lane in sorted(lanes)},
    }


def check_state(state: Any) -> None:
    """Raise StateError where a value isn't a state of this release."""
    if not isinstance(state, Mapping):
        raise StateError(f"a state is a mapping, not {type(state).__name__}; pass what state_dict() returned")
    missing = [field for field in FIELDS if field not in state]
    if missing:
        raise StateError(f"the state has no {', '.join(missing)} (it has: {', '.join(map(str, state))})")
    if state["version"] != STATE_VERSION:
        raise StateError(f"state of version {state['version']!r}, this release reads {STATE_VERSION}")
    consumed, plan, lanes = state["consumed"], state["plan"], state["lanes"]
    if type(consumed) is not int or not 0 <= consumed < MAX_CONSUMED:
        raise StateError(f"the state's consumed={consumed!r} is no number of sequences; load an earlier checkpoint")
    num_lanes = plan.get("lanes") if isinstance(plan, Mapping) else None
    if type(num_lanes) is not int or not 1 <= num_lanes < MAX_LANES:
        raise StateError("the state's plan is damaged; load an earlier checkpoint")
    if not isinstance(lanes, Mapping):
        raise StateError("the state's lanes are damaged; load an earlier checkpoint")
    for lane in lanes:
        number = int(lane) if isinstance(lane, str) and lane.isdecimal() and len(lane) < 11 else -1
        # One way to write a number: "07" and "7" would be two lanes in one place.
        if not 0 <= number < num_lanes or str(number) != lane:
            raise StateError(
                f"the state has a lane {lane!r}, its plan lanes 0..{num_lanes - 1}; load an earlier checkpoint"
            )


def merge_states(states: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the states of several ranks into one.

    Raises StateError where plans or positions differ or a lane that several hold isn't the same in all.
    """
    merged: dict[str, Any] | None = None
    for number, state in enumerate(states):
        check_state(state)
        if merged is None:
            merged = make_state(state["plan"], state["consumed"], {int(k): v for k, v in state["lanes"].items()})
            continue
        found = differences(merged["plan"], state["plan"])
        if found:
            raise StateError(f"states 0 and {number} are of different plans: {'; '.join(found)}")
        if state["consumed"] != merged["consumed"]:
            raise StateError(
                f"states 0 and {number} are at different positions: consumed={merged['consumed']} and "
                f"{state['consumed']}; take state_dict(consumed=N) with one N on all ranks"
            )
        for lane, data in state["lanes"].items():
            if merged["lanes"].setdefault(lane, data) != data:
                raise StateError(
                    f"lane {lane} differs between state {number} and one before it; they are of different runs"
                )
    if merged is None:
        raise StateError("no states to merge")
    merged["lanes"] = {lane: merged["lanes"][lane] for lane in sorted(merged["lanes"], key=int)}
    return merged


def stream_digest(state: Mapping[str, Any]) -> str:
    """Return one hex string for the whole stream up to `consumed`: equal exactly if the same data was delivered.

    BLAKE2b-128 over consumed, the number of lanes and the lanes' digests. Needs every lane: merge the ranks'
    states first. Raises StateError where one is missing.
    """
    check_state(state)
    lanes, num_lanes = state["lanes"], state["plan"]["lanes"]
    missing = [lane for lane in range(num_lanes) if str(lane) not in lanes]
    if missing:
        raise StateError(
            f"the state lacks {len(missing)} of {num_lanes} lanes ({missing[0]} …); merge_states of all ranks first"
        )
    digest = blake2b(digest_size=16)
    digest.update(state["consumed"].to_bytes(8, "little") + num_lanes.to_bytes(4, "little"))
    for lane in range(num_lanes):
        digest.update(decode_lane(lanes[str(lane)], place=f"lane {lane}").digest)
    return digest.hexdigest()
