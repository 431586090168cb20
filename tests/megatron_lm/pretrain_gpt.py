"""A training script of the shape of Megatron-LM's own, with a datasets provider of its own."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import beside_the_script
from megatron.training import get_args, pretrain
from megatron.training.global_vars import ARGS


def train_valid_test_datasets_provider(num_samples: Any, vp_stage: int | None = None) -> Any:
    raise AssertionError("the stock provider was called")


def forward_step(data_iterator: Any) -> Any:
    return None if data_iterator is None else next(data_iterator)


if __name__ == "__main__":
    train_valid_test_datasets_provider.is_distributed = True  # type: ignore[attr-defined]
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for option in ("seq-length", "micro-batch-size", "global-batch-size", "train-iters", "eval-iters"):
        parser.add_argument(f"--{option}", type=int)
    for option in ("tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size"):
        parser.add_argument(f"--{option}", type=int, default=1)
    parser.add_argument("--data-path", nargs="*")
    for option in ("out", "save", "load", "dataloader-type", "split"):
        parser.add_argument(f"--{option}")
    parser.add_argument("--dataloader-inter-document-masking", action="store_true")
    args, args.others = parser.parse_known_args()
    args.rank, args.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    ARGS[:] = [args]
    if args.rank == 0:
        told = {**vars(get_args()), "beside": beside_the_script.NAME}
        (Path(args.out) / "arguments.json").write_text(json.dumps(told))
    pretrain(None, train_valid_test_datasets_provider, "encoder_or_decoder", forward_step, get_embedding_ranks=None)
