"""One rank of a job that saves lanes with dist_checkpointing and loads them at other layouts; tells what it read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import dist_checkpointing, parallel_state
from megatron_layouts import layout
from rank_options import rank_options
from zephon_megatron import find_place, lane_shards, load_lane_shards

from zephon import Loader, ZephonError, merge_states, stream_digest


def main() -> None:
    options = rank_options()
    # All that dist_checkpointing's saving needs of CUDA.
    torch.cuda.synchronize = lambda: None  # type: ignore[assignment]
    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment,return-value]
    told = []
    for number, run in enumerate(json.loads(options.runs.read_text())):
        rendezvous = f"file://{options.rendezvous}.{number}"
        dist.init_process_group("gloo", init_method=rendezvous, rank=options.rank, world_size=options.world)
        layout(run["layout"])
        try:
            told.append(one_run(run))
        except ZephonError as error:
            told.append({"error": f"{type(error).__name__}: {error}"})
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()
    (options.out / f"lanes{options.world}-{options.rank}.json").write_text(json.dumps(told))


def one_run(run: Mapping[str, Any]) -> dict[str, Any]:
    """Load, read up to `until` sequences, save; stages between the first and the last hold no loader."""
    place = find_place()
    loader = None
    if not 0 < place.pp_rank < place.pp_size - 1:
        loader = Loader(run["config"], place.topology)
    if run.get("load"):
        load_lane_shards(run["load"], loader)
    told: dict[str, Any] = {"sequences": [], "started_at": loader and loader.consumed}
    if loader is not None:
        batches = (run["until"] - loader.consumed) // place.dp_size
        told["sequences"] = [n for batch in islice(iter(loader), batches) for n in batch.sequences]
    state = loader.state_dict() if loader else None
    shards = lane_shards(state, place)
    told["holders"] = {shard.unique_key: shard.replica_id for shard in shards.values()}
    if run.get("save"):
        folder = Path(run["save"])
        folder.mkdir(parents=True, exist_ok=True)
        dist.barrier()
        dist_checkpointing.save(
            {"zephon": shards, "step": 3} if run.get("with_lanes", True) else {"step": 3}, str(folder)
        )
        dist.barrier()
    states: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(states, state)
    told["digest"] = stream_digest(merge_states([state for state in states if state]))
    return told


# dist_checkpointing starts processes that import this file.
if __name__ == "__main__":
    main()
