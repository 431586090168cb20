"""One data-parallel rank of the run with images; pictures.py starts them. The demo's train.py does the steps."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "demo"))

import torch
from picture_model import PictureModel
from tokenizers import Tokenizer
from train import LEARNING_RATE, gather_state, join, read_arguments, save, tell, train_step

import zephon


def main() -> None:
    """Train from the checkpoint in --run, or from the start, up to step --until."""
    arguments = read_arguments()
    with join(arguments):
        train(arguments)


def train(arguments: argparse.Namespace) -> None:
    """Run the steps from the checkpoint's to `until`, saving every `save_every` of them and at the end."""
    config = zephon.load_config(arguments.config, overrides=arguments.set)
    topology = zephon.Topology(dp_rank=arguments.rank, dp_size=arguments.ranks)
    tokenizer = Tokenizer.from_file(config.tokenizer.path)
    images = config.sources["captions"].stage["images"]
    patch, merge = images["resize"]["patch"], images["resize"]["merge"]
    torch.manual_seed(0)
    model = PictureModel(
        vocabulary=tokenizer.get_vocab_size(),
        length=config.sequence_length,
        patch_values=3 * patch * patch,
        patches=merge * merge,
        placeholder=tokenizer.token_to_id(images["placeholder"]),
    )
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
                state = gather_state(loader, consumed=(step + 1) * config.global_batch_size)
                if arguments.rank == 0:
                    save(path, step=step + 1, model=model, optimizer=optimizer, stream=state)
                tell("saved", step=step + 1, digest=zephon.stream_digest(state))


if __name__ == "__main__":
    main()
