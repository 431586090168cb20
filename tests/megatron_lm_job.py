"""One rank of a run of Megatron-LM's own `pretrain`, on Zephon's data; writes down the rows that get_batch gave it."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import megatron_lm_wheel  # noqa: F401 - first, because it makes megatron importable
import torch
from megatron.core import parallel_state
from megatron.core.enums import ModelType
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.utils import get_attr_wrapped_model, get_batch_on_this_tp_rank
from megatron.training import get_args, pretrain
from megatron.training.argument_utils import gpt_config_from_args, pretrain_cfg_container_from_args
from megatron.training.arguments import core_transformer_config_from_args, parse_and_validate_args
from megatron.training.utils import is_first_or_last_pipeline_stage
from torch.distributed import FileStore
from zephon_megatron import add_zephon_arguments, train_valid_test_datasets_provider

KEYS = ("tokens", "labels", "loss_mask", "position_ids", "attention_mask", "cu_seqlens", "cu_seqlens_padded")
ROWS: dict[str, list[dict[str, Any]]] = {"train": [], "valid": []}


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--rank", required=True)
    parser.add_argument("--world", required=True)
    parser.add_argument("--rendezvous", required=True)
    parser.add_argument("--out", type=Path, required=True)
    options, rest = parser.parse_known_args()
    os.environ |= {"RANK": options.rank, "LOCAL_RANK": options.rank, "WORLD_SIZE": options.world}
    sys.argv[1:] = rest
    args = parse_and_validate_args(
        extra_args_provider=add_zephon_arguments, args_defaults={"tokenizer_type": "NullTokenizer"}
    )
    pretrain(
        pretrain_cfg_container_from_args(args, gpt_config_from_args(args)),
        train_valid_test_datasets_provider,
        ModelType.encoder_or_decoder,
        forward_step,
        model_provider=make_model,
        store=FileStore(options.rendezvous, int(options.world)),
    )
    place = {
        "dp": parallel_state.get_data_parallel_rank(),
        "tp": parallel_state.get_tensor_model_parallel_rank(),
        "pp": parallel_state.get_pipeline_model_parallel_rank(),
        "dp_size": parallel_state.get_data_parallel_world_size(),
        "consumed": get_args().consumed_train_samples,
    }
    (options.out / f"rank{options.rank}.json").write_text(json.dumps({**place, **ROWS}))


def forward_step(data: Iterator[dict[str, torch.Tensor]], model: torch.nn.Module) -> tuple[torch.Tensor, Any]:
    """Take a batch as pretrain_gpt does, with Megatron's own broadcast."""
    args = get_args()
    stage = get_attr_wrapped_model(model, "vp_stage")
    batch: dict[str, Any] = {}
    if is_first_or_last_pipeline_stage(stage):
        tp_rank = parallel_state.get_tensor_model_parallel_rank()
        if tp_rank == 0:
            given = next(data)
            batch = {key: given.get(key) for key in (*KEYS, "max_seqlen")}
        batch = get_batch_on_this_tp_rank(
            batch,
            broadcast_src_rank=parallel_state.get_tensor_model_parallel_src_rank(),
            broadcast_group=parallel_state.get_tensor_model_parallel_group(),
            has_cu_seqlens=False,
            is_hybrid_cp=False,
            create_attention_mask_in_dataloader=False,
            cp_size=1,
            tp_rank=tp_rank,
            micro_batch_size=args.micro_batch_size,
            seq_length=args.seq_length,
            mtp_on_this_rank=False,
            pipeline_model_parallel_size=args.pipeline_model_parallel_size,
            is_pipeline_first_stage=parallel_state.is_pipeline_first_stage(),
            is_pipeline_last_stage=parallel_state.is_pipeline_last_stage(),
        )
        told = {key: [digest(row) for row in batch[key]] for key in ("tokens", "labels") if batch.get(key) is not None}
        # Of the step under way.
        ROWS["train" if model.training else "valid"].append({"at": args.consumed_train_samples, **told})
    output = model(batch.get("tokens"), batch.get("position_ids"), None, labels=batch.get("labels"))
    return output, partial(loss_of, batch.get("loss_mask"))


def loss_of(mask: torch.Tensor, output: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    loss, count = (output.float() * mask).sum(), mask.sum().int()
    report = torch.cat([loss.clone().detach().view(1), count.view(1)])
    return loss.clone(), count, {"lm loss": report}


def make_model(
    pre_process: bool = True, post_process: bool = True, vp_stage: int | None = None, **given: Any
) -> GPTModel:
    args = get_args()
    return GPTModel(
        config=given.get("config") or core_transformer_config_from_args(args),
        transformer_layer_spec=get_gpt_layer_local_spec(),
        vocab_size=args.padded_vocab_size,
        max_sequence_length=args.seq_length,
        pre_process=pre_process,
        post_process=post_process,
        vp_stage=vp_stage,
    )


def digest(row: torch.Tensor) -> str:
    return hashlib.sha256(row.contiguous().numpy().tobytes()).hexdigest()[:16]


# dist_checkpointing starts processes that import this file.
if __name__ == "__main__":
    main()
