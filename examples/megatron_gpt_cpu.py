"""A tiny GPT of megatron-core, with its own schedules, on CPU processes: fed by Zephon, resumed at another layout.

    python examples/megatron_gpt_cpu.py --run out/megatron --ranks 4 --pp 2 --until 20
    python examples/megatron_gpt_cpu.py --run out/megatron --ranks 2 --tp 2 --until 40

trains 20 steps on 2 data-parallel ranks of 2 pipeline stages, then 20 more on 2 tensor-parallel ranks. Model,
optimizer and the stream's lanes are in one dist_checkpointing checkpoint. Without --config it makes small shards of
numbers in the --run folder; `--config configs/demo.yaml` takes what `make demo` left. Prints a line of JSON a step.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import sys
import time
import warnings
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from megatron_on_cpu import pretend_cpu_is_cuda

import zephon

TIMEOUT = timedelta(seconds=120)
WIDTH, HEADS, LAYERS = 64, 4, 2


def main() -> None:
    """Start a process a rank and wait for them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="folder of the checkpoints")
    parser.add_argument("--config", help="the stream's configuration; default: small shards made here")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--tp", type=int, default=1, help="tensor-parallel size")
    parser.add_argument("--pp", type=int, default=1, help="pipeline-parallel size")
    parser.add_argument("--until", type=int, required=True, help="stop after so many steps, of all runs together")
    parser.add_argument("--vocabulary", type=int, default=8192)
    options = parser.parse_args()
    options.run.mkdir(parents=True, exist_ok=True)
    if options.config is None:
        make_shards(options.run / "data")
    rendezvous = options.run / "rendezvous"
    rendezvous.unlink(missing_ok=True)
    # megatron-core tells what isn't installed.
    warnings.simplefilter("ignore")
    # Before megatron is imported; and that once, because it takes seconds: the ranks are forked.
    pretend_cpu_is_cuda()
    importlib.import_module("megatron.core")
    fork = multiprocessing.get_context("fork")
    ranks = [fork.Process(target=train, args=(options, rank, rendezvous)) for rank in range(options.ranks)]
    for rank in ranks:
        rank.start()
    while any(rank.is_alive() for rank in ranks) and not any(rank.exitcode for rank in ranks):
        time.sleep(0.05)
    for rank in ranks:
        # Where one failed, the others would wait for it.
        if any(other.exitcode for other in ranks):
            rank.kill()
        rank.join()
    sys.exit(max(abs(rank.exitcode or 0) for rank in ranks))


def train(options: argparse.Namespace, rank: int, rendezvous: Path) -> None:
    """Be one rank: train from the newest checkpoint to --until, and save there."""
    from megatron.core import dist_checkpointing, parallel_state
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from zephon_megatron import Form, ZephonIterator, find_place, lane_shards, load_lane_shards, needs_data

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{rendezvous.resolve()}",
        rank=rank,
        world_size=options.ranks,
        timeout=TIMEOUT,
    )
    parallel_state.initialize_model_parallel(options.tp, options.pp)
    config = zephon.load_config(options.config or small_config(options.run / "data"))
    model, optimizer = build(options.vocabulary, config.sequence_length)

    # Zephon, from here …
    place = find_place()
    data = None
    # Here each tensor-parallel rank reads for itself; Megatron-LM's get_batch broadcasts from the first one.
    if needs_data(place, packed=False, replicate=True):
        data = ZephonIterator(config, place, form=Form(), micro_batch_size=config.micro_batch_size)
    # … to here.
    step = newest_step(options.run)
    if step is None:
        step = 0
        # Every layout begins with these weights; the optimizer has no state yet.
        save(options.run / "step_0000000", sharded_state(model), lane_shards(data and data.state_dict(), place))
    folder = options.run / f"step_{step:07d}"
    wanted = sharded_state(model, optimizer, is_loading=True) if step else sharded_state(model)
    loaded = dist_checkpointing.load(wanted, str(folder))
    model.module.load_state_dict(loaded["model"])
    if step:
        optimizer.load_state_dict(loaded["optimizer"])
    load_lane_shards(folder, data and data.loader)

    micro_batches = config.global_batch_size // (place.dp_size * config.micro_batch_size)
    for number in range(step, options.until):
        model.zero_grad_buffer()
        optimizer.zero_grad()
        losses = get_forward_backward_func()(
            forward_step_func=forward_step,
            data_iterator=data,
            model=model,
            num_microbatches=micro_batches,
            seq_length=config.sequence_length,
            micro_batch_size=config.micro_batch_size,
            forward_only=False,
        )
        optimizer.step()
        tell(place, number, losses)
    if options.until > step:
        state = sharded_state(model, optimizer)
        save(options.run / f"step_{options.until:07d}", state, lane_shards(data and data.state_dict(), place))
    if data is not None:
        data.close()
    dist.barrier()
    dist.destroy_process_group()


def forward_step(data: Iterator[dict[str, torch.Tensor]] | None, model: torch.nn.Module) -> tuple[torch.Tensor, Any]:
    """Run the model's part of a micro-batch; stages between the first and the last need no data."""
    batch = {} if data is None else next(data)
    output = model(batch.get("tokens"), batch.get("position_ids"), None, labels=batch.get("labels"))
    return output, partial(loss_of, batch.get("loss_mask"))


def loss_of(mask: torch.Tensor, output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Return the summed loss of the labels that count, their number, and both for the report."""
    loss = (output.float() * mask).sum()
    count = mask.sum().int()
    # The schedule divides the loss in place.
    return loss, count, {"sums": torch.stack([loss.detach().clone(), count.float()])}


def build(vocabulary: int, length: int) -> tuple[Any, Any]:
    """Return this rank's part of a GPT, in megatron-core's data-parallel wrapper, and its optimizer."""
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer import TransformerConfig

    tensor_parallel.model_parallel_cuda_manual_seed(0)
    torch.manual_seed(0)
    config = TransformerConfig(
        num_layers=LAYERS,
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        tensor_model_parallel_size=parallel_state.get_tensor_model_parallel_world_size(),
        pipeline_model_parallel_size=parallel_state.get_pipeline_model_parallel_world_size(),
        use_cpu_initialization=True,
        pipeline_dtype=torch.float32,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        calculate_per_token_loss=True,
        finalize_model_grads_func=finalize_model_grads,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        apply_rope_fusion=False,
        gradient_accumulation_fusion=False,
        cross_entropy_loss_fusion=False,
    )
    gpt = GPTModel(
        config=config,
        transformer_layer_spec=get_gpt_layer_local_spec(),
        vocab_size=vocabulary,
        max_sequence_length=length,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
    )
    model = DistributedDataParallel(config, DistributedDataParallelConfig(), gpt)
    # Clipping needs a kernel that the CPU hasn't.
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1e-3, clip_grad=0.0), [model])
    return model, optimizer


def sharded_state(model: Any, optimizer: Any = None, *, is_loading: bool = False) -> dict[str, Any]:
    """Return what dist_checkpointing saves and loads of model and optimizer, whatever the layout."""
    parts = {"model": model.module.sharded_state_dict()}
    if optimizer is not None:
        parts["optimizer"] = optimizer.sharded_state_dict(parts["model"], is_loading=is_loading)
    return parts


def save(folder: Path, state: dict[str, Any], lanes: dict[str, Any]) -> None:
    """Write a checkpoint of model, optimizer and stream; it counts once it has its name."""
    from megatron.core import dist_checkpointing

    partial_folder = folder.with_suffix(".partial")
    if dist.get_rank() == 0:
        partial_folder.mkdir(parents=True, exist_ok=True)
    dist.barrier()
    dist_checkpointing.save({**state, "zephon": lanes}, str(partial_folder))
    dist.barrier()
    if dist.get_rank() == 0:
        partial_folder.rename(folder)
    dist.barrier()


def newest_step(run: Path) -> int | None:
    """Return the step of the newest checkpoint, or None."""
    return max((int(path.name[5:]) for path in run.glob("step_*") if path.name[5:].isdecimal()), default=None)


def tell(place: Any, step: int, losses: list[dict[str, torch.Tensor]]) -> None:
    """Print the step's loss, the mean of the labels that count in the global batch, on one rank."""
    if not place.is_last_stage:
        return
    from megatron.core import parallel_state

    sums = torch.stack([loss["sums"] for loss in losses]).sum(dim=0)
    dist.all_reduce(sums, group=parallel_state.get_data_parallel_group())
    if place.dp_rank == place.tp_rank == 0:
        print(json.dumps({"step": step, "loss": float(sums[0] / sums[1]), "labels": int(sums[1])}), flush=True)


def make_shards(folder: Path) -> None:
    """Write two small JSONL shards of tokens that a model can learn to predict."""
    folder.mkdir(parents=True, exist_ok=True)
    for shard in range(2):
        path = folder / f"numbers-{shard}.jsonl"
        if path.exists():
            continue
        lines = []
        for sample in range(shard, 800, 2):
            start, step, size = sample * 37 % 251, 1 + sample % 5, 8 + sample * 13 % 90
            lines.append(json.dumps({"tokens": [1 + (start + step * place) % 255 for place in range(size)]}) + "\n")
        path.with_suffix(".partial").write_text("".join(lines))
        path.with_suffix(".partial").rename(path)


def small_config(folder: Path) -> dict[str, Any]:
    """Return the configuration of the shards that `make_shards` writes."""
    return {
        "seed": 1234,
        "lanes": 8,
        "global_batch_size": 8,
        "micro_batch_size": 2,
        "sequence_length": 64,
        "sources": {
            "numbers": {
                "path": str(folder / "numbers-*.jsonl"),
                "stage": {"kind": "tokens", "field": "tokens"},
                "block_samples": 8,
            }
        },
        "pack": {"pool": 8},
        "backend": {"kind": "threads", "workers": 1},
        "device": "cpu",
    }


if __name__ == "__main__":
    main()
