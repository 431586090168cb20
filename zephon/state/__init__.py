"""What a checkpoint holds: encoding, merging, checking."""

from zephon.state.check import check_plan, differences
from zephon.state.lane_codec import decode_lane, encode_lane
from zephon.state.whole import check_state, make_state, merge_states, stream_digest

__all__ = [
    "check_plan",
    "check_state",
    "decode_lane",
    "differences",
    "encode_lane",
    "make_state",
    "merge_states",
    "stream_digest",
]
