"""Lanes as objects of a dist_checkpointing checkpoint, for training loops of one's own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from zephon import Loader, StateError
from zephon.state import check_state
from zephon.topology import lanes_of
from zephon_megatron.topology import Place

LANE = "zephon.lane"
HEAD = "zephon.head"
# Where what is loaded stands in between, beside the checkpoint's own plain values.
UNDER = "zephon_lanes_loaded"


def lane_shards(state: Mapping[str, Any] | None, place: Place) -> dict[str, Any]:
    """Return a rank's part of a state as ShardedObjects, to be put under any key of a sharded state dict.

    `state` is what the rank's `state_dict()` returned, at a position that is the same on all ranks; None on ranks
    that hold no loader. A lane's place in the checkpoint depends on its number alone, never on the layout, and
    exactly one of the ranks that hold it writes it.
    """
    if state is None:
        return {}
    from megatron.core.dist_checkpointing.mapping import ShardedObject

    check_state(state)
    num_lanes = state["plan"]["lanes"]
    peers = place.tp_size * place.pp_size * place.cp_size
    head = {"version": state["version"], "plan": state["plan"], "consumed": state["consumed"]}
    made = {"head": ShardedObject(HEAD, head, (1,), (0,), replica_id=place.dp_rank * peers + place.holder)}
    # Of the ranks that share a lane, and of each one's peers, all but one hold a replica.
    replica = place.dp_rank // num_lanes * peers + place.holder
    for lane, data in state["lanes"].items():
        made[f"lane_{lane}"] = ShardedObject(LANE, data, (num_lanes,), (int(lane),), replica_id=replica)
    return made


def load_lane_shards(checkpoint: str | os.PathLike[str], loader: Loader | None) -> None:
    """Restore a loader from a checkpoint that `lane_shards` is part of, whatever layout saved it.

    A collective over all ranks; ranks without a loader pass None. Reads the rank's own lanes only. Raises StateError
    where the checkpoint has no lanes, or they aren't of the loader's plan.
    """
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing.mapping import ShardedObject

    num_lanes = _saved_lanes(checkpoint)
    wanted: dict[str, Any] = {"head": ShardedObject(HEAD, None, (1,), (0,))}
    if loader is not None:
        for lane in lanes_of(loader.topology, num_lanes):
            wanted[str(lane)] = ShardedObject(LANE, None, (num_lanes,), (lane,))
    # Several ranks read one lane: no holder is more than another here.
    found = dist_checkpointing.load({UNDER: wanted}, str(checkpoint), validate_access_integrity=False)[UNDER]
    if loader is not None:
        loader.load_state_dict({**found.pop("head"), "lanes": found})


def _saved_lanes(checkpoint: str | os.PathLike[str]) -> int:
    """Return the number of lanes in a checkpoint, by the names of its objects."""
    from megatron.core.dist_checkpointing.mapping import ShardedObject
    from megatron.core.dist_checkpointing.serialization import load_sharded_metadata

    saved = load_sharded_metadata(str(checkpoint))
    shapes = {
        entry.global_shape[0] for entry in saved.values() if isinstance(entry, ShardedObject) and entry.key == LANE
    }
    heads = [entry for entry in saved.values() if isinstance(entry, ShardedObject) and entry.key == HEAD]
    if len(shapes) != 1 or len(heads) != 1:
        raise StateError(
            f"the checkpoint {checkpoint} has no state of Zephon's (no {LANE} among its {len(saved)} entries); "
            "save lane_shards(...) with the model, or start anew"
        )
    return int(shapes.pop())
