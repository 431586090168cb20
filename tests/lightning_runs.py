"""Runs Trainers on the ranks of one launch and records every micro-batch that a training step saw.

`python lightning_runs.py SPEC.json`: a list of legs, run one after another on `devices` ranks; each rank appends
a line a micro-batch to FOLDER/NAME/legN-rankR.jsonl: [optimizer steps before it, its sequences, their rows' hashes].
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint, OnExceptionCheckpoint
from lightning.pytorch.loggers import CSVLogger
from row_hashes import row_hashes
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from zephon_lightning import ZephonDataModule

VOCABULARY = 1000


class TinyModel(LightningModule):
    """An embedding and a head; `reads_steps` asks for the steps to come, `fail_at` fails on all ranks."""

    def __init__(self, out: str, *, reads_steps: bool = False, fail_at: int | None = None) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(VOCABULARY, 8)
        self.head = torch.nn.Linear(8, VOCABULARY)
        self.out, self.reads_steps, self.fail_at = out, reads_steps, fail_at
        self.seen = 0
        self.validated: list[list[str]] = []

    def configure_model(self) -> None:
        if self.device_mesh is not None:
            plan = {"head": ColwiseParallel(output_layouts=Replicate())}
            parallelize_module(self, self.device_mesh["tensor_parallel"], plan)

    def configure_optimizers(self) -> Any:
        if self.reads_steps:
            # Makes Lightning build the loader, and fetch from it, before the checkpoint is loaded.
            _ = self.trainer.estimated_stepping_batches
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def loss(self, batch: Any) -> torch.Tensor:
        logits = self.head(self.embedding(batch["tokens"]))
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
        mask = batch["loss_mask"].flatten()
        return (losses * mask).sum() / mask.sum().clamp(min=1)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.fail_at is not None and self.seen >= self.fail_at:
            raise RuntimeError("asked to fail")
        self.seen += 1
        with Path(f"{self.out}-rank{self.global_rank}.jsonl").open("a") as file:
            file.write(json.dumps([self.global_step, list(batch.sequences), row_hashes(batch)]) + "\n")
        return self.loss(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        with Path(f"{self.out}-val-rank{self.global_rank}.jsonl").open("a") as file:
            file.write(json.dumps([self.trainer.sanity_checking, self.global_step, row_hashes(batch)]) + "\n")
        self.log("val_loss", self.loss(batch), sync_dist=True, batch_size=1)


class Pause(Callback):
    """Says when a step is reached, and then waits there to be killed."""

    def __init__(self, at: int, flag: str) -> None:
        self.at, self.flag = at, flag

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if batch_idx == self.at:
            Path(f"{self.flag}-{trainer.global_rank}").touch()
            while True:
                torch.randn(100).sum()


def run_leg(leg: dict[str, Any], devices: int) -> None:
    folder = Path(leg["folder"])
    callbacks: list[Callback] = [ModelCheckpoint(dirpath=folder, filename=leg["save"], **leg["checkpoint"])]
    if leg.get("fail_at") is not None and leg.get("save_on_exception"):
        callbacks.append(OnExceptionCheckpoint(folder, filename=leg["save_on_exception"]))
    if leg.get("pause_at") is not None:
        callbacks.append(Pause(leg["pause_at"], str(folder / "paused")))
    strategy: Any = "auto" if devices == 1 else "ddp"
    if leg.get("mesh"):
        from lightning.pytorch.strategies import ModelParallelStrategy

        dp, tp = leg["mesh"]
        strategy = ModelParallelStrategy(
            data_parallel_size=dp, tensor_parallel_size=tp, save_distributed_checkpoint=True
        )
    trainer = Trainer(
        accelerator="cpu",
        devices=devices,
        strategy=strategy,
        callbacks=callbacks,
        logger=CSVLogger(folder, name=f"log-{leg['name']}-{leg['number']}") if leg.get("logs") else False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **leg["trainer"],
    )
    model = TinyModel(leg["out"], reads_steps=leg.get("reads_steps", False), fail_at=leg.get("fail_at"))
    module = ZephonDataModule(
        leg["config"], val_config=leg.get("val_config"), validation=leg.get("validation", "fixed")
    )
    resume = leg.get("resume")
    try:
        trainer.fit(model, datamodule=module, ckpt_path=resume, weights_only=True)
    except RuntimeError as error:
        if "asked to fail" not in str(error):
            raise
    if leg.get("save_after"):
        trainer.save_checkpoint(folder / leg["save_after"])


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    # A complaint about loaders, samplers or workers ends the run; these are of other things.
    warnings.simplefilter("error", UserWarning)
    warnings.filterwarnings("ignore", message="Checkpoint directory .* exists")
    warnings.filterwarnings("ignore", message=".* was called without a model")
    warnings.filterwarnings("ignore", message="You defined a `validation_step` but have no")
    warnings.filterwarnings("ignore", message=".*there is no last checkpoint available")
    torch.set_num_threads(1)
    for leg in spec["legs"]:
        torch.manual_seed(1)
        run_leg(leg, spec["devices"])
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
