"""From a host micro-batch to the trainer's tensors: on every device equal to the last bit."""

from __future__ import annotations

from typing import Any

import torch

from zephon.collate.batch import Batch
from zephon.collate.host import IMAGE_GRID, IMAGE_ROW, IMAGE_TOKENS, HostBatch, layout
from zephon.collate.host_text import host_text
from zephon.collate.images import PixelBuilder
from zephon.collate.upload import Array, Uploader, make_uploader
from zephon.errors import ConfigError
from zephon.images.rules import ResizeRule


def resolve_device(name: str) -> torch.device:
    """Return the device that `auto`, `cpu`, `cuda` or `cuda:N` names here.

    `auto` is the current CUDA device where there is one, else the CPU. Raises ConfigError where it isn't there.
    """
    kind, colon, number = name.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (colon and not (kind == "cuda" and number.isdecimal())):
        raise ConfigError(f"device={name!r} is no device; set auto, cpu, cuda or cuda:N")
    count = torch.cuda.device_count() if kind != "cpu" and torch.cuda.is_available() else 0
    if kind == "cpu" or (kind == "auto" and count == 0):
        return torch.device("cpu")
    if count == 0:
        raise ConfigError(f"device={name!r}, but torch sees no CUDA device here; set device=cpu or auto")
    index = int(number) if colon else torch.cuda.current_device()
    if index >= count:
        raise ConfigError(f"device={name!r}, but torch sees {count} CUDA device(s) here: cuda:0 to cuda:{count - 1}")
    return torch.device("cuda", index)


def collate(
    host: HostBatch,
    *,
    device: torch.device,
    mask_boundary: bool,
    reset_position_ids: bool,
    attention_mask: bool,
    align: int = 1,
    resize: ResizeRule | None = None,
) -> Batch:
    """Return the micro-batch on `device`; see Batch for shapes and dtypes, docs/stream.md for the rules.

    `align` is the packer's: padding starts at a multiple of it. `resize` is the rule of the images, where it has any.
    For a run of batches use a Collator.
    """
    collator = Collator(
        device=device,
        mask_boundary=mask_boundary,
        reset_position_ids=reset_position_ids,
        attention_mask=attention_mask,
        align=align,
        resize=resize,
    )
    return collator.hand_over(collator.build(host))


class Collator:
    """Makes batches on one device: `build` in whatever thread makes them, `hand_over` in the trainer's.

    On CUDA its pinned buffers and its stream let the copies overlap with the trainer's work.
    """

    def __init__(
        self,
        *,
        device: torch.device,
        mask_boundary: bool,
        reset_position_ids: bool,
        attention_mask: bool,
        align: int,
        resize: ResizeRule | None = None,
    ) -> None:
        self._pixels = None if resize is None else PixelBuilder(resize, device=device)
        self._uploader = make_uploader(device)
        self._device = device
        self._mask_boundary = mask_boundary
        self._reset_position_ids = reset_position_ids
        self._attention_mask = attention_mask
        self._align = align

    def build(self, host: HostBatch) -> Batch:
        """Return a host batch's tensors, perhaps still under way."""
        return build_batch(
            host,
            uploader=self._uploader,
            device=self._device,
            mask_boundary=self._mask_boundary,
            reset_position_ids=self._reset_position_ids,
            attention_mask=self._attention_mask,
            align=self._align,
            pixels=self._pixels,
        )

    def hand_over(self, batch: Batch) -> Batch:
        """Return a built batch, for use in the calling thread's current stream."""
        return self._uploader.hand_over(batch)


def build_batch(
    host: HostBatch,
    *,
    uploader: Uploader,
    device: torch.device,
    mask_boundary: bool,
    reset_position_ids: bool,
    attention_mask: bool,
    align: int,
    pixels: PixelBuilder | None = None,
) -> Batch:
    """Return what `collate` returns, under way on the uploader's device."""
    rows, width = host.tokens.shape
    length = width - 1
    images = host.images
    # A row's last token is a label only; no image's lies there.
    of_images: list[Array] = [] if images is None else [images.table, *images.pixels]
    if device.type == "cpu":
        text = host_text(host, mask_boundary=mask_boundary, align=align, reset=reset_position_ids)
        max_seqlen = text.max_seqlen
        arrays: list[Array] = [text.cu_seqlens, *of_images]
    else:
        place = layout(host.pieces, rows, length, mask_boundary=mask_boundary, align=align)
        max_seqlen = place.max_seqlen
        masks = [] if host.mask is None else [host.mask]
        arrays = [place.cu_seqlens, *of_images, host.tokens, *masks, place.unpredicted, place.starts, place.gains]

    def build(tensors: list[torch.Tensor]) -> Batch:
        cu_seqlens, pictures, rest = tensors[0], tensors[1 : 1 + len(of_images)], tensors[1 + len(of_images) :]
        if device.type == "cpu":
            entries: dict[str, Any] = {name: torch.from_numpy(array) for name, array in text.entries.items()}
        else:
            wide, *mask, unpredicted, starts, gains = rest
            entries = device_text(wide, mask[0] if mask else None, unpredicted, starts, gains, reset=reset_position_ids)
        entries["cu_seqlens"] = cu_seqlens
        entries["max_seqlen"] = max_seqlen
        if attention_mask:
            entries["attention_mask"] = _attention(cu_seqlens, rows, length)
        if pictures and pixels is not None:
            entries |= image_entries(pictures[0], pictures[1:], pixels)
        return Batch(entries, sequences=host.sequences)

    batch = uploader.build(arrays, build)
    batch.host_bytes = sum(array.nbytes for array in arrays)
    if device.type == "cpu":
        # They are handed over too, inside the entries.
        batch.host_bytes += host.tokens.nbytes + (0 if host.mask is None else host.mask.nbytes)
    return batch


def device_text(
    wide: torch.Tensor,
    mask: torch.Tensor | None,
    unpredicted: torch.Tensor,
    starts: torch.Tensor,
    gains: torch.Tensor,
    *,
    reset: bool,
) -> dict[str, Any]:
    """Return what host_text does, of the tensors of HostBatch and Layout, on whatever device they are."""
    # An operation costs microseconds before its first element, as much as these sizes take: so, few of them.
    rows, width = wide.shape
    length = width - 1
    # wide[:, :-1] and wide[:, 1:], for half the price of indexing.
    shape, strides = (rows, length), wide.stride()
    inputs = wide.as_strided(shape, strides)
    labels = wide.as_strided(shape, strides, wide.storage_offset() + strides[1])
    if mask is None:
        loss = torch.ones(rows * length, dtype=torch.float32, device=wide.device)
    else:
        loss = mask[:, 1:].float().view(-1)
    return {
        "tokens": inputs.long(),
        "labels": labels.long(),
        "loss_mask": loss.index_fill_(0, unpredicted, 0.0).view(rows, length),
        "position_ids": _positions(starts, gains, rows, length, reset=reset),
    }


def image_entries(table: torch.Tensor, images: list[torch.Tensor], pixels: PixelBuilder) -> dict[str, Any]:
    """Return a batch's entries for images [frames, height, width, 3] and their HostImages.table."""
    return {
        "pixel_values": pixels.build(images),
        "image_grid_thw": table[:, IMAGE_GRID].contiguous(),
        "image_positions": table[:, IMAGE_ROW : IMAGE_TOKENS + 1].contiguous(),
    }


def _positions(starts: torch.Tensor, gains: torch.Tensor, rows: int, length: int, *, reset: bool) -> torch.Tensor:
    """Return positions int64 [b, S]: a running count that falls back to 0 at each segment start."""
    if not reset:
        return torch.arange(length, device=starts.device).repeat(rows, 1)
    # Not repeat_interleave of the starts: on the CPU that wakes torch's threads, whatever the size.
    return starts.new_ones(rows * length).index_copy_(0, starts, gains).cumsum_(0).view(rows, length)


def _attention(cu_seqlens: torch.Tensor, rows: int, length: int) -> torch.Tensor:
    """Return bool [b, 1, S, S]: true where query i (third axis) may see key j: j <= i, in the same segment."""
    segments = torch.zeros(rows * length, dtype=torch.int32, device=cu_seqlens.device)
    segments = segments.index_fill_(0, cu_seqlens[:-1].long(), 1).cumsum_(0).view(rows, 1, length)
    same: torch.Tensor = segments.unsqueeze(3) == segments.unsqueeze(2)
    return same.tril_()
