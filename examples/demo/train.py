"""One data-parallel rank of the demo's training run; demo.py starts as many as a segment has.

The global batch is the same whatever the number of ranks: a window of the stream. Each rank sums loss and
gradients over the rows it got, one all-reduce adds them up, and the sum is divided by the number of labels
in the global batch. So the numbers depend on the number of ranks by rounding only.

Rank 0 tells what happens on standard output, one JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from model import Model
from tokenizers import Tokenizer
from torch import Tensor, nn

import zephon

WARMUP_STEPS = 10
LEARNING_RATE = 2e-3
TIMEOUT = timedelta(seconds=120)


def main() -> None:
    """Train from the checkpoint in --run, or from the start, up to step --until."""
    arguments = read_arguments()
    with join(arguments):
        train(arguments)


def read_arguments() -> argparse.Namespace:
    """Return the command line's arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    parser.add_argument("--set", action="append", default=[], help="an override of the configuration: a.b=value")
    parser.add_argument("--run", type=Path, required=True, help="folder of the checkpoint")
    parser.add_argument("--rendezvous", type=Path, required=True, help="a file that doesn't exist yet")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--until", type=int, required=True)
    parser.add_argument("--save-every", type=int, required=True)
    return parser.parse_args()


@contextmanager
def join(arguments: argparse.Namespace) -> Iterator[None]:
    """Belong to the ranks of the run, with one thread a rank: two cores are shared among up to four."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{arguments.rendezvous.resolve()}",
        rank=arguments.rank,
        world_size=arguments.ranks,
        timeout=TIMEOUT,
    )
    try:
        yield
    finally:
        dist.destroy_process_group()


def train(arguments: argparse.Namespace) -> None:
    """Run the steps from the checkpoint's to `until`, saving every `save_every` of them and at the end."""
    config = zephon.load_config(arguments.config, overrides=arguments.set)
    topology = zephon.Topology(dp_rank=arguments.rank, dp_size=arguments.ranks)
    vocabulary = Tokenizer.from_file(config.tokenizer.path).get_vocab_size()
    # Equal on every rank, and for every number of ranks.
    torch.manual_seed(0)
    model = Model(vocabulary=vocabulary, length=config.sequence_length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, eps=1e-6)
    micro_batches = config.global_batch_size // (arguments.ranks * config.micro_batch_size)
    path = arguments.run / "checkpoint.pt"
    first = 0
    with zephon.Loader(config, topology) as loader:
        if path.exists():
            saved = torch.load(path, weights_only=True)
            first = saved["step"]
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            loader.load_state_dict(saved["stream"])
        tell("start", step=first)
        batches = iter(loader)
        for step in range(first, arguments.until):
            loss = train_step(step, model, optimizer, batches, micro_batches)
            tell("step", step=step, loss=loss)
            if (step + 1) % arguments.save_every == 0 or step + 1 == arguments.until:
                # What the trainer has consumed; the loader itself is ahead of that.
                state = gather_state(loader, consumed=(step + 1) * config.global_batch_size)
                if dist.get_rank() == 0:
                    save(path, step=step + 1, model=model, optimizer=optimizer, stream=state)
                tell("saved", step=step + 1, digest=zephon.stream_digest(state))


def train_step(
    step: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterator[Mapping[str, Tensor]],
    micro_batches: int,
) -> float:
    """Take one optimizer step on a global batch; return its mean loss a label, equal on all ranks."""
    optimizer.zero_grad()
    sums = torch.zeros(2)
    for micro_batch in range(micro_batches):
        batch = next(batches)
        loss = model(batch)
        if micro_batch == 0:
            # demo.py kills the ranks when it reads this: between the forward and the backward pass.
            tell("midway", step=step)
        loss.backward()
        sums += torch.stack([loss.detach(), batch["loss_mask"].sum()])
    # Every parameter has a gradient, even where no label of this rank counts.
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    flat = torch.cat([sums, *(gradient.flatten() for gradient in gradients)])
    dist.all_reduce(flat)
    total_loss, labels = float(flat[0]), float(flat[1])
    start = 2
    for gradient in gradients:
        stop = start + gradient.numel()
        gradient.copy_(flat[start:stop].view_as(gradient) / labels)
        start = stop
    for group in optimizer.param_groups:
        group["lr"] = LEARNING_RATE * min(1.0, (step + 1) / WARMUP_STEPS)
    optimizer.step()
    return total_loss / labels


def gather_state(loader: zephon.Loader, *, consumed: int) -> dict[str, Any]:
    """Return the whole stream's state after `consumed` sequences, joined from all ranks; every rank must call it."""
    states: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(states, loader.state_dict(consumed=consumed))
    return zephon.merge_states(states)


def save(
    path: Path, *, step: int, model: nn.Module, optimizer: torch.optim.Optimizer, stream: Mapping[str, Any]
) -> None:
    """Write the checkpoint so that a crash leaves the old one or the new one, never half of one."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        torch.save(
            {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict(), "stream": stream}, file
        )
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def tell(event: str, **values: int | float | str) -> None:
    """Print an event as JSON, on rank 0 only."""
    if dist.get_rank() == 0:
        print(json.dumps({"event": event, **values}), flush=True)


if __name__ == "__main__":
    main()
