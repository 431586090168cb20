"""Plain PyTorch: a DeviceMesh, and model, optimizer and stream in one torch.distributed.checkpoint.

    torchrun --standalone --nproc-per-node 2 examples/pytorch_dcp.py --folder out/dcp --until 10
    torchrun --standalone --nproc-per-node 4 examples/pytorch_dcp.py --folder out/dcp --until 20 --replicate 2

trains 10 steps with FSDP on 2 ranks, then 10 more with HSDP on 2×2. `--config` is configs/demo.yaml, which needs what
`make demo` leaves. Rank 0 prints a line of JSON a step.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from zephon_torch import LoaderState, topology_from_mesh

import zephon


def main() -> None:
    """Be one rank: train from the checkpoint in --folder, if there is one, up to step --until."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="folder of the checkpoints")
    parser.add_argument("--config", default="configs/demo.yaml")
    parser.add_argument("--until", type=int, required=True, help="stop after so many steps, of all runs together")
    parser.add_argument("--replicate", type=int, default=1, help="dp_replicate: copies of the sharded model")
    parser.add_argument("--vocabulary", type=int, default=8192)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        train(options)
    finally:
        dist.destroy_process_group()


def train(options: argparse.Namespace) -> None:
    """Train and save; the stream's position is the step."""
    shape = (options.replicate, dist.get_world_size() // options.replicate)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("dp_replicate", "dp_shard"))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(options.vocabulary, 64), torch.nn.Linear(64, options.vocabulary))
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    config = zephon.load_config(options.config)
    topology = topology_from_mesh(mesh)
    micro_batches, rest = divmod(config.global_batch_size, topology.dp_size * config.micro_batch_size)
    if rest:
        raise zephon.ConfigError(
            f"global_batch_size={config.global_batch_size} isn't whole micro-batches of all ranks; "
            f"make it a multiple of {topology.dp_size * config.micro_batch_size}"
        )

    with zephon.Loader(config, topology) as loader:
        stream = LoaderState(loader)
        saved = sorted(options.folder.glob("step-*/.metadata"))
        if saved:
            weights, moments = get_state_dict(model, optimizer)
            dcp.load({"model": weights, "optimizer": moments, "stream": stream}, checkpoint_id=saved[-1].parent)
            set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
        batches = iter(loader)
        while (step := loader.consumed // config.global_batch_size) < options.until:
            micro = [next(batches) for _ in range(micro_batches)]
            # Of the global batch: labels that count, then the sum of their losses.
            totals = torch.stack([sum(batch["loss_mask"].sum() for batch in micro), torch.zeros(())])
            dist.all_reduce(totals)
            for batch in micro:
                logits = model(batch["tokens"].flatten())
                losses = cross_entropy(logits, batch["labels"].flatten(), reduction="none")
                loss = (losses * batch["loss_mask"].flatten()).sum()
                totals[1] += loss.detach()
                # FSDP averages gradients over the ranks.
                (loss * topology.dp_size / totals[0]).backward()
            optimizer.step()
            optimizer.zero_grad()
            dist.all_reduce(mine := totals[1].clone())
            if dist.get_rank() == 0:
                told = {"step": step, "consumed": loader.consumed, "loss": (mine / totals[0]).item()}
                print(json.dumps(told), flush=True)
        weights, moments = get_state_dict(model, optimizer)
        folder = options.folder / f"step-{loader.consumed // config.global_batch_size:06d}"
        dcp.save({"model": weights, "optimizer": moments, "stream": stream}, checkpoint_id=folder)


if __name__ == "__main__":
    main()
