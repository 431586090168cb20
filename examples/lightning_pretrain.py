"""A small GPT, trained by Lightning on 1 to 4 CPU processes and resumed on another number of them.

    make demo        # once: builds the shards in demo-data/
    python examples/lightning_pretrain.py --run out/lightning --ranks 4 --until 20
    python examples/lightning_pretrain.py --run out/lightning --ranks 3 --until 40

trains 20 steps on four processes, then 20 more on three, from the checkpoint in the --run folder. The second run
begins at the first row that the first one didn't train on, and a step takes the same global batch as it would have
on four. Prints the position and the stream's digest: equal digests mean equal rows, whatever the numbers of processes.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from demo.model import Model
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from tokenizers import Tokenizer
from zephon_lightning import ZephonDataModule

import zephon


class Gpt(LightningModule):
    """The demo's model, with its loss and its optimizer."""

    def __init__(self, *, vocabulary: int, length: int) -> None:
        super().__init__()
        self.model = Model(vocabulary=vocabulary, length=length)

    def training_step(self, batch: zephon.Batch, batch_idx: int) -> torch.Tensor:
        # By the row's places, not by its labels: so the mean over ranks and micro-batches is the global batch's,
        # however it was cut up.
        loss = self.model(batch) / batch["tokens"].numel()
        self.log("loss", loss, prog_bar=True, batch_size=1)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    """Train up to step --until, from the checkpoint in --run if there is one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="configs/lightning.yaml", help="the stream's configuration")
    parser.add_argument("--run", type=Path, required=True, help="folder of checkpoints and logs")
    parser.add_argument("--ranks", type=int, default=1, help="processes on this machine")
    parser.add_argument("--until", type=int, required=True, help="stop after so many optimizer steps, of all runs")
    parser.add_argument("--save-every", type=int, default=10, help="optimizer steps between checkpoints")
    options = parser.parse_args()
    # The ranks share this machine's cores.
    torch.set_num_threads(1)
    torch.manual_seed(0)

    module = ZephonDataModule(options.config)
    config = module.config
    model = Gpt(vocabulary=Tokenizer.from_file(config.tokenizer.path).get_vocab_size(), length=config.sequence_length)
    newest = options.run / "newest.ckpt"
    trainer = Trainer(
        accelerator="cpu",
        devices=options.ranks,
        strategy="ddp" if options.ranks > 1 else "auto",
        max_steps=options.until,
        accumulate_grad_batches=micro_batches(config, options.ranks),
        callbacks=[
            ModelCheckpoint(options.run, "newest", every_n_train_steps=options.save_every, enable_version_counter=False)
        ],
        logger=CSVLogger(options.run, name="logs"),
        log_every_n_steps=1,
    )
    resume: dict[str, Any] = {"ckpt_path": newest, "weights_only": True} if newest.exists() else {}
    trainer.fit(model, datamodule=module, **resume)
    stream = module.state_dict()["train"]
    if trainer.is_global_zero:
        print(f"step {trainer.global_step}, sequence {stream['consumed']}, digest {zephon.stream_digest(stream)}")


def micro_batches(config: zephon.Config, ranks: int) -> int:
    """Return how many micro-batches of a rank make its part of the global batch."""
    count, rest = divmod(config.global_batch_size or 0, ranks * config.micro_batch_size)
    if rest or not count:
        raise SystemExit(
            f"--ranks {ranks} × micro_batch_size {config.micro_batch_size} doesn't divide "
            f"global_batch_size {config.global_batch_size}; choose another number of ranks"
        )
    return count


if __name__ == "__main__":
    main()
