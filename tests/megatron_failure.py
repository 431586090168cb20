"""One rank of a job whose stream holds a bad sample: started by torchrun, it trains until something ends it."""

from __future__ import annotations

import sys
from argparse import Namespace

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from zephon_megatron import make_provider


def main(config: str) -> None:
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel()
    args = Namespace(
        dataloader_type="external",
        seq_length=32,
        micro_batch_size=2,
        consumed_train_samples=0,
        iteration=0,
        eval_iters=0,
        load=None,
        save=None,
    )
    train, _, _ = make_provider(config, get_args=lambda: args)([1, 0, 0])
    for step in range(1000):
        batch = next(train)
        # The step's collective: the others wait here for a rank that is gone.
        total = torch.tensor(float(batch["loss_mask"].sum()))
        dist.all_reduce(total)
        tell(f"step {step}")
    tell("came to an end")


def tell(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
