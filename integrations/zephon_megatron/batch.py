"""A micro-batch as Megatron's GPT get_batch wants it: a plain dict of CPU tensors, dense or packed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import torch
from torch import Tensor

from zephon import Config, ConfigError
from zephon.read_config import validate


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch dict holds; the names are Megatron's switches.

    packed                  also cu_seqlens and max_seqlen (THD attention); position ids start anew with a document
    reset_position_ids      position ids start anew with each document; without it they count through the row
    create_attention_mask   also attention_mask
    reset_attention_mask    in it, documents don't see each other; without it, it is causal over the row
    eod_token               no loss where the input is this token (`eod_mask_loss`); None: as the plan says
    cp_size                 context-parallel size; above 1 a packed batch also has cu_seqlens_padded
    """

    packed: bool = False
    reset_position_ids: bool = False
    create_attention_mask: bool = False
    reset_attention_mask: bool = False
    eod_token: int | None = None
    cp_size: int = 1


def config_for(config: Config, form: Form, *, micro_batch_size: int) -> Config:
    """Return the configuration of a loader whose batches `gpt_batch` takes: on the CPU, of this size and form.

    Only settings that aren't part of the plan are changed. Raises ConfigError where rows can't be cut among
    context-parallel ranks: 2 * cp_size must divide sequence_length, and pack.align if rows are packed; and for a
    micro_batch_size that is no int of at least 1.
    """
    if not isinstance(micro_batch_size, int) or isinstance(micro_batch_size, bool) or micro_batch_size < 1:
        raise ConfigError(f"micro_batch_size={micro_batch_size!r} is no number of rows; set an int, 1 or more")
    parts = 2 * form.cp_size
    if form.cp_size > 1 and config.sequence_length % parts:
        raise ConfigError(
            f"sequence_length={config.sequence_length} is no multiple of 2 * cp_size = {parts}; choose one that is"
        )
    if form.cp_size > 1 and form.packed and config.pack.align % parts:
        raise ConfigError(
            f"pack.align={config.pack.align}, but packed rows with cp_size={form.cp_size} need documents that start "
            f"at multiples of {parts}; set pack.align to a multiple of it (it is part of the plan)"
        )
    changed = msgspec.structs.replace(
        config,
        micro_batch_size=micro_batch_size,
        device="cpu",
        reset_position_ids=form.packed or form.reset_position_ids,
        attention_mask=form.create_attention_mask and form.reset_attention_mask,
    )
    validate(changed)
    return changed


def gpt_batch(batch: Mapping[str, Any], form: Form) -> dict[str, Tensor]:
    """Return the dict that pretrain_gpt's get_batch reads; `batch` is of a loader of `config_for`.

    tokens, labels, position_ids  int64 [b, S]
    loss_mask                     float32 [b, S]
    attention_mask                bool [b, 1, S, S], true where attention is *not* allowed; only if asked for
    cu_seqlens                    int32 [b, S + 1]: each row's segment starts, then S to the end; only if packed
    cu_seqlens_padded             the same: the gap behind a document is part of its segment; packed and cp_size > 1
    max_seqlen                    int32 [b]: each row's longest segment; only if packed

    Every tensor is the dict's own: Megatron may keep it, and move it.
    """
    tokens = batch["tokens"].contiguous()
    rows, length = tokens.shape
    loss_mask = batch["loss_mask"]
    if form.eod_token is not None:
        loss_mask = loss_mask.masked_fill(tokens == form.eod_token, 0.0)
    made = {
        "tokens": tokens,
        "labels": batch["labels"].contiguous(),
        "loss_mask": loss_mask,
        "position_ids": batch["position_ids"],
    }
    if form.create_attention_mask:
        if form.reset_attention_mask:
            made["attention_mask"] = batch["attention_mask"].logical_not()
        else:
            causal = torch.ones(length, length, dtype=torch.bool).triu_(1)
            made["attention_mask"] = causal.repeat(rows, 1, 1, 1)
    if form.packed:
        bounds = row_bounds(batch["cu_seqlens"], rows, length)
        made["cu_seqlens"] = bounds
        made["max_seqlen"] = (bounds[:, 1:] - bounds[:, :-1]).amax(dim=1)
        if form.cp_size > 1:
            made["cu_seqlens_padded"] = bounds.clone()
    return made


def row_bounds(cu_seqlens: Tensor, rows: int, length: int) -> Tensor:
    """Return int32 [rows, length + 1]: the segment starts of each row, then `length` as often as there is room.

    `cu_seqlens` are the starts in the micro-batch's rows * length inputs, and its end; every row's start is one.
    """
    starts = cu_seqlens[:-1].long()
    row = starts // length
    # A segment's number in its row: its number in all, less that of the row's first one.
    first = torch.searchsorted(row, torch.arange(rows))
    column = torch.arange(len(starts)) - first[row]
    bounds = torch.full((rows, length + 1), length, dtype=torch.int32)
    bounds[row, column] = (starts - row * length).int()
    return bounds
