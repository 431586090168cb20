"""A micro-batch as Megatron-Bridge's get_batch wants it."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


def bridge_batch(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the dict that gpt_step's get_batch reads, from one of zephon_megatron's `gpt_batch`.

    tokens, labels, position_ids     int64 [b, S]
    loss_mask                        float32 [b, S]
    cu_seqlens_q, cu_seqlens_kv      int32 [segments + 1]; only if packed, as all below; b is 1 then
    cu_seqlens_q_padded, cu_seqlens_kv_padded   the same, where the batch has cu_seqlens_padded
    max_seqlen_q, max_seqlen_kv      int32, one value
    """
    made = {key: batch[key] for key in ("tokens", "labels", "loss_mask", "position_ids")}
    if "cu_seqlens" not in batch:
        return made
    bounds, length = batch["cu_seqlens"][0], batch["tokens"].shape[1]
    # Without the repeats of the length that fill the row up: Bridge takes every pair of bounds as a segment.
    bounds = bounds[: int((bounds < length).sum()) + 1]
    names = ["cu_seqlens_q", "cu_seqlens_kv"]
    if "cu_seqlens_padded" in batch:
        names += ["cu_seqlens_q_padded", "cu_seqlens_kv_padded"]
    # Each its own: Bridge may move one and not the other.
    made |= {name: bounds.clone() for name in names}
    return made | {name: batch["max_seqlen"][0].clone() for name in ("max_seqlen_q", "max_seqlen_kv")}
