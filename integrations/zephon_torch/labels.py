"""Batches as loss functions of other libraries want them: an index instead of a mask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

# What torch's cross_entropy leaves out by default.
IGNORED = -100


def masked_labels(batch: Mapping[str, Any], *, ignored: int = IGNORED) -> Tensor:
    """Return a micro-batch's labels (int64 [b, S], the token after each input), `ignored` where the mask is 0."""
    labels: Tensor = batch["labels"]
    return labels.masked_fill(batch["loss_mask"] == 0, ignored)
