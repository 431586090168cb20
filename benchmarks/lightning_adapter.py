"""What ZephonDataModule costs a Trainer, against the same steps that iterate the Loader by hand.

`python benchmarks/lightning_adapter.py [--steps 200] [--rounds 7] [--step-ms 20] [--every 50] [--alone]`

One process, a stream of numbers made beforehand, micro-batches [4, 1024] of CPU tensors, matrix products of --step-ms
in all as the step. A round runs the same Trainer three times, each with its own loader, in an order that turns from
round to round:

by hand   a plain iterable over `zephon.Loader`: Lightning's loop, and nothing of the adapter
module    ZephonDataModule, without figures
figures   ZephonDataModule, with figures in a CSV file every --every steps

Prints, for each, the median of a step's time and of the trainer thread's processor time, and the median and the
quartiles of the rounds' ratios to "by hand", of both.

With --alone: what the adapter does a step beside the Loader and the Trainer, in microseconds, least of 50 times 1,000
steps: its iterator and its callback over batches that are there already, less a bare loop over them. A busy machine
moves that the least.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import random
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from zephon_lightning import ZephonCheckpoint, ZephonDataModule
from zephon_lightning.stream import Stream

import zephon

WARM_STEPS = 20


class Timed(LightningModule):
    """A step of a set length; the steps after the first ones are timed."""

    def __init__(self, products: int) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(256, 256, bias=False)
        self.products = products
        # (time, processor time of this thread) where each step begins.
        self.times: list[tuple[float, float]] = []

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1e-6)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.times.append((time.perf_counter(), time.thread_time()))
        x = batch["tokens"][:, :256].float()
        return work(self.layer(x), self.products).sum()


class ByHand:
    """The Loader as a user without the adapter would pass it."""

    def __init__(self, loader: zephon.Loader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)


def work(x: torch.Tensor, products: int) -> torch.Tensor:
    """Return x, and take the time of so many matrix products."""
    square = torch.ones(256, 256)
    for _ in range(products):
        square = square @ square * 1e-3
    return x + square[0]


def products_of(step_ms: float) -> int:
    """Return how many matrix products take so long."""
    began = time.perf_counter()
    work(torch.ones(4, 256), 200)
    return max(1, round(step_ms / 1000 / ((time.perf_counter() - began) / 200)))


def write_stream(folder: Path) -> dict[str, Any]:
    """Write a source of numbers and return a configuration over it."""
    draw = random.Random(1)
    with (folder / "numbers.jsonl").open("w") as file:
        for _ in range(20_000):
            file.write(json.dumps({"tokens": [draw.randrange(50_000) for _ in range(draw.randrange(50, 600))]}) + "\n")
    return {
        "lanes": 64,
        "micro_batch_size": 4,
        "sequence_length": 1024,
        "index_dir": str(folder / "index"),
        "device": "cpu",
        "backend": {"kind": "threads", "workers": 1},
        "sources": {"numbers": {"path": str(folder / "numbers.jsonl"), "stage": {"kind": "tokens", "field": "tokens"}}},
    }


def step_s(
    way: str, config: dict[str, Any], folder: Path, options: argparse.Namespace, products: int
) -> tuple[float, float]:
    """Return the time and the processor time of a step, one way."""
    model = Timed(products)
    trainer = Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=options.steps + WARM_STEPS,
        logger=CSVLogger(folder) if way == "figures" else False,
        log_every_n_steps=options.every,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    if way == "by hand":
        with zephon.Loader(config) as loader:
            trainer.fit(model, ByHand(loader))
    else:
        trainer.fit(model, datamodule=ZephonDataModule(config, log=way == "figures"))
    steps = len(model.times) - 1 - WARM_STEPS
    (began, busy), (ended, busy_after) = model.times[WARM_STEPS], model.times[-1]
    return (ended - began) / steps, (busy_after - busy) / steps


class Ready:
    """A loader whose batches cost nothing."""

    def __init__(self, batch: Any) -> None:
        self.batch, self.consumed = batch, 0

    def __iter__(self) -> Iterator[Any]:
        while True:
            self.consumed += 4
            yield self.batch


def alone_s(config: dict[str, Any]) -> float:
    """Return the time that the adapter takes a step, by itself."""
    with zephon.Loader(config) as loader:
        batch = next(iter(loader))
    module = ZephonDataModule(config, log=False)
    callback = ZephonCheckpoint()
    trainer: Any = SimpleNamespace(datamodule=module, accumulate_grad_batches=1, logger=None)
    best, bare = math.inf, math.inf
    for _ in range(50):
        batches = iter(Ready(batch))
        began = time.perf_counter()
        for _ in range(1000):
            next(batches)
        bare = min(bare, time.perf_counter() - began)
        ready: Any = Ready(batch)
        module._train = Stream(ready)
        fetched = iter(module._train)
        began = time.perf_counter()
        for number in range(1, 1001):
            given = next(fetched)
            callback.on_train_batch_start(trainer, None, given, number)  # type: ignore[arg-type]
            callback.on_train_batch_end(trainer, None, None, given, number)  # type: ignore[arg-type]
        best = min(best, time.perf_counter() - began)
    module._train = None
    return (best - bare) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--step-ms", type=float, default=20.0)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--alone", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    products = products_of(options.step_ms)
    ways = ["by hand", "module", "figures"]
    taken: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = write_stream(folder)
        if options.alone:
            print(f"the adapter alone: {alone_s(config) * 1e6:.1f} µs a step")
            return
        for number in range(options.rounds):
            for place in range(len(ways)):
                way = ways[(number + place) % len(ways)]
                taken[way].append(step_s(way, config, folder, options, products))
    for way, steps in taken.items():
        print(f"{way:8}", *(told(steps, taken["by hand"], column) for column in (0, 1)), sep="   ")


def told(steps: list[tuple[float, float]], bare: list[tuple[float, float]], column: int) -> str:
    """Return a column's median in milliseconds, and its ratios to the bare ones of the same rounds."""
    ratios = [mine[column] / other[column] for mine, other in zip(steps, bare, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{statistics.median(step[column] for step in steps) * 1e3:7.3f} ms {middle:.4f} [{low:.4f}, {high:.4f}]"


if __name__ == "__main__":
    main()
