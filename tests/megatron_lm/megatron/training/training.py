"""`pretrain` with Megatron-LM 0.19's parameters, and the part of its loop that has to do with data.

It calls the provider as the original does, wraps what it gives, takes micro-batches by megatron-core's calculator,
and saves the data loader's state where and as the original does. There is no model: it writes down what it was given.
"""

from __future__ import annotations

import hashlib
import json
import os
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import num_microbatches_calculator as calculator
from megatron.core import parallel_state
from megatron.core.rerun_state_machine import (
    RerunDataIterator,
    destroy_rerun_state_machine,
    initialize_rerun_state_machine,
)

from .global_vars import get_args


def pretrain(
    cfg_container: Any,
    train_valid_test_dataset_provider: Any,
    model_type: Any,
    forward_step_func: Any,
    model_provider: Any = None,
    process_non_loss_data_func: Any = None,
    get_embedding_ranks: Any = None,
    get_position_embedding_ranks: Any = None,
    non_loss_data_func: Any = None,
    store: Any = None,
) -> None:
    args = get_args()
    rendezvous = f"file://{os.environ['RENDEZVOUS']}"
    dist.init_process_group("gloo", init_method=rendezvous, rank=args.rank, world_size=args.world_size)
    parallel_state.initialize_model_parallel(args.tensor_model_parallel_size, args.pipeline_model_parallel_size)
    initialize_rerun_state_machine()
    dp_size = parallel_state.get_data_parallel_world_size()
    calculator.init_num_microbatches_calculator(0, None, args.global_batch_size, args.micro_batch_size, dp_size)
    read_iteration(args)
    # Every rank calls it, since it must say that it is distributed.
    assert train_valid_test_dataset_provider.is_distributed
    train, valid, _ = train_valid_test_dataset_provider([args.train_iters * args.global_batch_size, 0, 0])
    iterator = None if train is None else RerunDataIterator(train)
    told: dict[str, Any] = {
        "dp_rank": parallel_state.get_data_parallel_rank(),
        "tp_rank": parallel_state.get_tensor_model_parallel_rank(),
        "begin": args.consumed_train_samples,
        "steps": [],
        "valid": None if valid is None else [digests(next(valid)) for _ in range(args.eval_iters)],
    }
    for _ in range(args.train_iters):
        taken = [forward_step_func(iterator) for _ in range(calculator.get_num_microbatches())]
        told["steps"].append([None if batch is None else digests(batch) for batch in taken])
        args.iteration += 1
        args.consumed_train_samples += args.global_batch_size
    if args.save:
        save(iterator, args)
    for one in (train, valid):
        if one is not None:
            one.close()
    (Path(args.out) / f"rank{args.rank}.json").write_text(json.dumps(told))
    destroy_rerun_state_machine()
    calculator.destroy_num_microbatches_calculator()
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


def digests(batch: dict[str, torch.Tensor]) -> list[str]:
    """Return a digest of each row, over all that get_batch reads of it."""
    keys = [key for key in ("tokens", "labels", "loss_mask", "position_ids", "cu_seqlens") if key in batch]
    rows = range(len(batch["tokens"]))
    return [hashlib.sha256(b"".join(batch[key][row].numpy().tobytes() for key in keys)).hexdigest() for row in rows]


def read_iteration(args: Namespace) -> None:
    args.iteration = args.consumed_train_samples = 0
    tracker = Path(args.load or "") / "latest.json"
    if args.load and tracker.is_file():
        args.iteration, args.consumed_train_samples = json.loads(tracker.read_text())


def save(iterator: RerunDataIterator | None, args: Namespace) -> None:
    writes = parallel_state.get_tensor_model_parallel_rank() == 0 and parallel_state.is_pipeline_first_stage()
    if writes and getattr(args, "dataloader_save", None):
        assert iterator is not None
        state = iterator.iterable.save_state()
        pipeline = parallel_state.get_pipeline_model_parallel_world_size() > 1
        folder = (
            Path(args.dataloader_save) / f"iter_{args.iteration:07d}" / ("mp_rank_00_000" if pipeline else "mp_rank_00")
        )
        folder.mkdir(parents=True, exist_ok=True)
        name = f"train_dataloader_dprank{parallel_state.get_data_parallel_rank():03d}.pt"
        torch.save({"dataloader_state_dict": state}, folder / name)
    dist.barrier()
    if args.rank == 0:
        (Path(args.save) / "latest.json").write_text(json.dumps([args.iteration, args.consumed_train_samples]))
    dist.barrier()
