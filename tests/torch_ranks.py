"""A rank of tests/e2e/test_torch_ranks.py: reads the stream on a mesh, saves and loads with DCP.

`python torch_ranks.py SPEC.json RANK`; writes what it read to OUT-rankR.jsonl.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from row_hashes import row_hashes
from torch.distributed.device_mesh import init_device_mesh
from zephon_torch import LoaderState, gather_state, raise_together, topology_from_mesh

from zephon import Loader, StateError, stream_digest


def run(spec: dict[str, Any], rank: int) -> None:
    size = spec["shape"][0] * spec["shape"][1]
    dist.init_process_group("gloo", init_method=f"file://{spec['out']}.store", rank=rank, world_size=size)
    mesh = init_device_mesh("cpu", tuple(spec["shape"]), mesh_dim_names=("dp_shard", "tp"))
    with Loader(spec["config"], topology_from_mesh(mesh)) as loader:
        # Saved is what was consumed; two micro-batches more are fetched by then.
        consumed = loader.consumed
        state = LoaderState(loader, consumed=lambda: consumed)
        if spec["load"]:
            dcp.load({"data": state}, checkpoint_id=spec["load"])
            consumed = loader.consumed
        lines = [["start", loader.consumed]]
        for step, batch in enumerate(loader):
            if step < spec["steps"]:
                lines.append([list(batch.sequences), row_hashes(batch)])
                consumed = loader.consumed
            elif step == spec["steps"] + 1:
                break
        if spec["asynchronous"]:
            dcp.async_save({"data": state}, checkpoint_id=spec["save"]).result()
        else:
            dcp.save({"data": state}, checkpoint_id=spec["save"])
        lines.append(["digest", stream_digest(gather_state(loader.state_dict(consumed=consumed)))])
        # A rank that can't give its part makes all ranks fail, with its words.
        try:
            gather_state(StateError("part is gone") if rank == size - 1 else loader.state_dict())
        except StateError as error:
            lines.append(["error", str(error)])
        raise_together(None)
    Path(f"{spec['out']}-rank{rank}.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=FutureWarning)
    run(json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2]))
