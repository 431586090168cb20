"""One rank of a job that goes through Megatron layouts and writes down the micro-batches it was given.

The part of Megatron-LM's loop that has to do with data, on megatron-core's own groups and batch-size calculator:
each run makes its layout, asks the provider for data, takes steps, saves and counts as the loop does.
"""

from __future__ import annotations

import hashlib
import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import num_microbatches_calculator as calculator
from megatron.core import parallel_state
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.rerun_state_machine import RerunDataIterator, initialize_rerun_state_machine
from rank_options import rank_options
from zephon_megatron import make_provider

from zephon import ZephonError

KEYS = ("tokens", "labels", "loss_mask", "position_ids", "attention_mask", "cu_seqlens", "max_seqlen")


def main() -> None:
    options = rank_options()
    initialize_rerun_state_machine()
    told = []
    for number, run in enumerate(json.loads(options.runs.read_text())):
        # Anew for each: megatron's groups have threads, which only the end of all groups ends.
        rendezvous = f"file://{options.rendezvous}.{number}"
        dist.init_process_group("gloo", init_method=rendezvous, rank=options.rank, world_size=options.world)
        layout(run["layout"])
        try:
            told.append(one_run(run))
        except ZephonError as error:
            told.append({"error": type(error).__name__, "message": str(error)})
        parallel_state.destroy_model_parallel()
        calculator.destroy_num_microbatches_calculator()
        dist.destroy_process_group()
    (options.out / f"rank{options.rank}.json").write_text(json.dumps(told))


def layout(sizes: dict[str, int]) -> None:
    parallel_state.initialize_model_parallel(
        sizes.get("tp", 1),
        sizes.get("pp", 1),
        virtual_pipeline_model_parallel_size=sizes.get("vp"),
        context_parallel_size=sizes.get("cp", 1),
    )


def one_run(run: dict[str, Any]) -> dict[str, Any]:
    """Take the run's steps from its start, saving at the end; return what this rank was given."""
    sizes = run["layout"]
    args = Namespace(**run["args"], context_parallel_size=sizes.get("cp", 1))
    args.virtual_pipeline_model_parallel_size = sizes.get("vp")
    dp_size = parallel_state.get_data_parallel_world_size()
    calculator.init_num_microbatches_calculator(
        0, run.get("ramp"), args.global_batch_size, args.micro_batch_size, dp_size
    )
    only = run.get("folder_of_rank", {}).get(str(dist.get_rank()))
    if only is not None:
        args.dataloader_load = only
    groups = ProcessGroupCollection.use_mpu_process_groups() if run.get("groups") else None
    provider = make_provider(run["config"], get_args=lambda: args, groups=groups, replicate=run.get("replicate", False))
    stages = [None] if "vp" not in sizes else list(range(sizes["vp"]))
    chunks = []
    for stage in stages:
        train, _, _ = provider([1, 0, 0], vp_stage=stage)
        chunks.append(None if train is None else RerunDataIterator(train))
    told: dict[str, Any] = {
        "place": {axis: getattr(parallel_state, f"get_{name}_parallel_rank")() for axis, name in AXES},
        "dp_size": dp_size,
        "started_at": args.consumed_train_samples,
        "steps": [],
    }
    for _ in range(run["steps"]):
        calculator.update_num_microbatches(args.consumed_train_samples, consistency_check=True)
        count = calculator.get_num_microbatches()
        begin = args.consumed_train_samples
        taken = [[given(chunk, run) for _ in range(count)] for chunk in chunks]
        for chunk in chunks:
            if chunk is not None:
                chunk.advance()
        args.iteration += 1
        args.consumed_train_samples += dp_size * args.micro_batch_size * count
        told["steps"].append({"begin": begin, "end": args.consumed_train_samples, "chunks": taken})
    told["iteration"], told["consumed"] = args.iteration, args.consumed_train_samples
    if run.get("save") and args.dataloader_save:
        save(chunks[0], args)
    for chunk in chunks:
        if chunk is not None:
            told["reads"] = told.get("reads", False) or hasattr(chunk.iterable, "loader")
            chunk.iterable.close()
    return told


AXES = (("dp", "data"), ("tp", "tensor_model"), ("pp", "pipeline_model"), ("cp", "context"))


def given(iterator: RerunDataIterator | None, run: dict[str, Any]) -> dict[str, Any] | None:
    """Return what `next` gives as digests of rows by key; a first rank's, broadcast, where this one has none."""
    batch = {} if iterator is None else next(iterator)
    if not run.get("replicate"):
        # What get_batch does; here whole, whichever keys there are.
        sent = [batch]
        dist.broadcast_object_list(
            sent,
            src=parallel_state.get_tensor_model_parallel_src_rank(),
            group=parallel_state.get_tensor_model_parallel_group(),
        )
        batch = sent[0]
    if not batch:
        return None
    return {key: [digest(row) for row in batch[key]] for key in KEYS if key in batch}


def digest(row: torch.Tensor) -> str:
    return hashlib.sha256(row.contiguous().numpy().tobytes()).hexdigest()[:16]


def save(iterator: RerunDataIterator | None, args: Namespace) -> None:
    """Do as Megatron-LM's maybe_save_dataloader_state does: who saves, what, where."""
    if iterator is None:
        return
    if not hasattr(iterator.iterable, "save_state"):
        raise RuntimeError("no save_state")
    if parallel_state.get_pipeline_model_parallel_rank() or parallel_state.get_tensor_model_parallel_rank():
        return
    state = iterator.iterable.save_state()
    folder = "mp_rank_00_000" if parallel_state.get_pipeline_model_parallel_world_size() > 1 else "mp_rank_00"
    name = f"train_dataloader_dprank{parallel_state.get_data_parallel_rank():03d}.pt"
    path = Path(args.dataloader_save) / f"iter_{args.iteration:07d}" / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if state is not None:
        torch.save({"dataloader_state_dict": state}, path)


if __name__ == "__main__":
    main()
