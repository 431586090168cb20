"""A row as NeMo AutoModel's collators take it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

# What AutoModel's losses leave out.
IGNORED = -100


def row_of(batch: Mapping[str, Any], form: str) -> dict[str, list[int]]:
    """Return the only row of a micro-batch as lists of integers.

    input_ids, labels, position_ids   one each for a token; labels are the next tokens, -100 where there is no loss
    attention_mask    plain: 1 throughout; neat: the number of the document, from 1 (for neat_packed_collater)
    seq_lens, seq_lens_padded   thd: the documents' lengths (for packed_sequence_thd_collater); the gap that
                      pack.align leaves behind a document counts as part of it
    """
    labels = batch["labels"][0].masked_fill(batch["loss_mask"][0] == 0, IGNORED)
    row: dict[str, list[int]] = {
        "input_ids": batch["tokens"][0].tolist(),
        "labels": labels.tolist(),
        "position_ids": batch["position_ids"][0].tolist(),
    }
    if form == "plain":
        # Without it AutoModel takes every token 0 for padding.
        return {**row, "attention_mask": [1] * len(row["input_ids"])}
    lengths = batch["cu_seqlens"].diff().long()
    if form == "thd":
        return {**row, "seq_lens": lengths.tolist(), "seq_lens_padded": lengths.tolist()}
    documents = torch.repeat_interleave(torch.arange(1, len(lengths) + 1), lengths)
    return {**row, "attention_mask": documents.tolist()}
