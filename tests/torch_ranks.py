"""A rank of tests/e2e/test_torch_ranks.py: reads the stream on meshes of several shapes, saves and loads with DCP.

`python torch_ranks.py --rank R --world N --rendezvous FILE --spec FILE`; ranks that a leg leaves out go on to the
next. Writes what it read to OUT/LEG-rankR.jsonl.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from datetime import timedelta
from hashlib import blake2b
from math import prod
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from zephon_torch import LoaderState, WholeState, gather_state, load_loader, raise_together, topology_from_mesh

from zephon import Loader, StateError, ZephonError, load_config, stream_digest

TIMEOUT = timedelta(seconds=60)


def row_hashes(tokens: Any) -> list[str]:
    """Return a short hash of each row of tokens."""
    return [blake2b(row.numpy().tobytes(), digest_size=6).hexdigest() for row in tokens]


def on_mesh(leg: dict[str, Any], lines: list[Any]) -> None:
    """Read, with two micro-batches fetched ahead of what is consumed and saved."""
    names = ("dp_replicate", "dp_shard", "tp")
    mesh = init_device_mesh("cpu", tuple(leg["shape"]), mesh_dim_names=names)
    with Loader(leg["config"], topology_from_mesh(mesh)) as loader:
        consumed = loader.consumed
        state = LoaderState(loader, consumed=lambda: consumed)
        if leg["load"]:
            if leg["asynchronous"]:
                load_loader(loader, leg["load"])
            else:
                dcp.load({"data": state}, checkpoint_id=leg["load"])
            consumed = loader.consumed
        lines.append(["start", loader.consumed])
        for step, batch in enumerate(loader):
            if step < leg["steps"]:
                lines.append(["rows", list(batch.sequences), row_hashes(batch["tokens"])])
                consumed = loader.consumed
            elif step == leg["steps"] + 1:
                break
        save = dcp.async_save if leg["asynchronous"] else dcp.save
        saving = save({"data": state}, checkpoint_id=leg["save"])
        if leg["asynchronous"]:
            # Training goes on meanwhile.
            next(iter(loader))
            saving.result()
        whole = WholeState(loader, consumed=lambda: consumed).state_dict()
        lines.append(["digest", stream_digest(whole)])
        fail_on_one_rank(loader, leg["save"], lines)


def fail_on_one_rank(loader: Loader, saved: str, lines: list[Any]) -> None:
    """A rank that can't give its part makes all ranks fail, with its words."""
    last = dist.get_rank() == dist.get_world_size() - 1
    attempts = [
        lambda: gather_state(StateError("part is gone") if last else loader.state_dict()),
        lambda: WholeState(loader, consumed=lambda: -1 if last else loader.consumed).state_dict(),
        # One rank looks in the wrong place.
        lambda: load_loader(loader, saved, key="elsewhere" if last else "data"),
    ]
    for attempt in attempts:
        try:
            attempt()
        except ZephonError as error:
            lines.append(["error", type(error).__name__, str(error)])
    raise_together(None)


def as_torchtitan(leg: dict[str, Any], lines: list[Any]) -> None:
    """Build the example's loader as torchtitan's trainer does, and checkpoint it under the key of its checkpointer."""
    # The real base class where torchtitan is installed.
    sys.path += [str(Path(__file__).parent / "torchtitan_shape"), leg["examples"]]
    from torchtitan_loader import ZephonDataLoader

    loader = ZephonDataLoader.Config(path=leg["config"]).build(
        dp_world_size=dist.get_world_size(),
        dp_rank=dist.get_rank(),
        tokenizer=None,
        seq_len=load_config(leg["config"]).sequence_length,
        local_batch_size=2,
        snapshot_every_n_steps=None,
    )
    states = {"dataloader": loader}
    if leg["load"]:
        dcp.load(states, checkpoint_id=leg["load"])
    lines.append(["start", loader.loader.consumed])
    batches = iter(loader)
    for _ in range(leg["steps"]):
        begin, size = loader.loader.consumed, dist.get_world_size()
        inputs, labels = next(batches)
        first = begin + (dist.get_rank() - begin) % size
        numbers = [first + row * size for row in range(len(labels))]
        lines.append(["rows", numbers, row_hashes(inputs["input"])])
        lines.append(["masked", int((labels == -100).sum())])
    dcp.save(states, checkpoint_id=leg["save"])
    loader.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--rendezvous", required=True)
    parser.add_argument("--spec", type=Path, required=True)
    options = parser.parse_args()
    # DCP's own, about tensors' storage.
    warnings.filterwarnings("ignore", category=FutureWarning)
    for number, leg in enumerate(json.loads(options.spec.read_text())):
        size = prod(leg["shape"])
        if options.rank >= size:
            continue
        # The first rank is in every leg, so that a leg begins when the one before it has saved.
        dist.init_process_group(
            "gloo",
            init_method=f"file://{options.rendezvous}-{number}",
            rank=options.rank,
            world_size=size,
            timeout=TIMEOUT,
        )
        lines: list[Any] = []
        (as_torchtitan if leg["torchtitan"] else on_mesh)(leg, lines)
        Path(f"{leg['out']}-rank{options.rank}.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
