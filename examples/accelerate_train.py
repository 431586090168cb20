"""Accelerate: the stream registered for checkpointing, so that save_state and load_state take it along.

    torchrun --standalone --nproc-per-node 2 examples/accelerate_train.py --folder out/accelerate --until 10
    torchrun --standalone --nproc-per-node 1 examples/accelerate_train.py --folder out/accelerate --until 20

trains 10 steps on 2 processes, then 10 more on one. `--config` is configs/demo.yaml, which needs what `make demo`
leaves. The main process prints a line of JSON a step.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.nn.functional import cross_entropy
from zephon_torch import WholeState, host_group, topology_from_world

import zephon


def main() -> None:
    """Be one process: train from the newest checkpoint in --folder, if there is one, up to step --until."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="folder of the checkpoints")
    parser.add_argument("--config", default="configs/demo.yaml")
    parser.add_argument("--until", type=int, required=True, help="stop after so many steps, of all runs together")
    parser.add_argument("--vocabulary", type=int, default=8192)
    options = parser.parse_args()
    torch.set_num_threads(1)

    accelerator = Accelerator(cpu=True)
    train(accelerator, options)
    # Before the process group: where DDP's reducer is the last to let go of a gloo group, torch can wait for ever.
    accelerator.free_memory()
    accelerator.end_training()


def train(accelerator: Accelerator, options: argparse.Namespace) -> None:
    """Train and save; the stream's position is the step."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(options.vocabulary, 64), torch.nn.Linear(64, options.vocabulary))
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    config = zephon.load_config(options.config)
    micro_batches, rest = divmod(config.global_batch_size, accelerator.num_processes * config.micro_batch_size)
    if rest:
        raise zephon.ConfigError(
            f"global_batch_size={config.global_batch_size} isn't whole micro-batches of all ranks; "
            f"make it a multiple of {accelerator.num_processes * config.micro_batch_size}"
        )

    # The loader isn't prepared: it shards by itself, and gives tensors on the device.
    with zephon.Loader(config, topology_from_world()) as loader:
        accelerator.register_for_checkpointing(WholeState(loader, group=host_group()))
        saved = sorted(options.folder.glob("step-*"))
        if saved:
            accelerator.load_state(str(saved[-1]))
        batches = iter(loader)
        while (step := loader.consumed // config.global_batch_size) < options.until:
            micro = [next(batches) for _ in range(micro_batches)]
            # Of the global batch.
            count = accelerator.reduce(sum(batch["loss_mask"].sum() for batch in micro), "sum")
            total = torch.zeros((), device=accelerator.device)
            for number, batch in enumerate(micro):
                last = number == micro_batches - 1
                with contextlib.nullcontext() if last else accelerator.no_sync(model):
                    logits = model(batch["tokens"]).flatten(0, 1)
                    losses = cross_entropy(logits, batch["labels"].flatten(), reduction="none")
                    loss = (losses * batch["loss_mask"].flatten()).sum()
                    total += loss.detach()
                    # Gradients are averaged over the processes.
                    accelerator.backward(loss * accelerator.num_processes / count)
            optimizer.step()
            optimizer.zero_grad()
            mean = accelerator.reduce(total, "sum") / count
            if accelerator.is_main_process:
                print(json.dumps({"step": step, "consumed": loader.consumed, "loss": mean.item()}), flush=True)
        accelerator.save_state(str(options.folder / f"step-{loader.consumed // config.global_batch_size:06d}"))


if __name__ == "__main__":
    main()
