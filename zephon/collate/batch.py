"""What the trainer gets: a mapping of tensors that knows its sequences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch


class Batch(dict[str, Any]):
    """A micro-batch: tensors by name, and `sequences`, the number in the stream of each row.

    tokens          int64 [b, S]
    labels          int64 [b, S]: the token after each input, also where its loss is masked
    loss_mask       float32 [b, S]: 1 where the label counts
    position_ids    int64 [b, S]: place in the segment, or in the row without `reset_position_ids`
    cu_seqlens      int32 [K + 1]: starts of the segments in the b * S inputs, then b * S
    max_seqlen      int: the longest segment; a Python int, so that kernels that need it never wait for the device
    attention_mask  bool [b, 1, S, S]: true where attention is allowed; only if asked for
    pixel_values    float32 [n, 3, size, size], or [patches, 3 * temporal_patch * patch * patch] with resize: native
    image_grid_thw  int64 [n, 3]: patches of each image over time, height and width
    image_positions  int64 [n, 3]: its row, the place of its first placeholder there, and its placeholders

    The last three are there if a source has images, in the order of their tokens in the flattened rows.
    A plain dict to everything that takes one; copies, `to` and pickles keep `sequences`.
    """

    sequences: tuple[int, ...]
    # Bytes that were handed to the device for it.
    host_bytes: int = 0
    # The CUDA event after which the tensors are there, until the batch is handed over.
    built: Any = None

    def __init__(
        self, entries: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), *, sequences: Iterable[int] | None = None
    ) -> None:
        super().__init__(entries)
        given = getattr(entries, "sequences", ()) if sequences is None else sequences
        self.sequences = tuple(given)

    def copy(self) -> Batch:
        """Return a shallow copy."""
        return Batch(self)

    def __copy__(self) -> Batch:
        return Batch(self)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """Return the batch with its tensors on a device; what isn't a tensor stays as it is."""
        moved = {
            name: value.to(device, non_blocking=non_blocking) if isinstance(value, torch.Tensor) else value
            for name, value in self.items()
        }
        return Batch(moved, sequences=self.sequences)

    def __repr__(self) -> str:
        return f"Batch({dict(self)!r}, sequences={self.sequences!r})"
