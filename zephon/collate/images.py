"""From resized uint8 images to a model's `pixel_values`, on the device that the model wants them on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from zephon.collate.host_pixels import CHANNELS, fixed_values, native_values
from zephon.images.rules import FixedRule, Geometry, NativeRule, ResizeRule


class PixelBuilder:
    """Builds pixel values by a resize rule; made once per device, so that a batch uploads its images and nothing else.

    A value is level * scale + shift in float32, rounded after each of the two, so that devices agree to the last
    bit; (level / 255 - mean) / std, to about 1e-6.
    """

    def __init__(self, rule: ResizeRule, *, device: torch.device) -> None:
        self._rule = rule
        self._on_host = device.type == "cpu"
        self._scale = np.array([1 / (255 * std) for std in rule.std], dtype=np.float32)
        self._shift = np.array([-mean / std for mean, std in zip(rule.mean, rule.std, strict=True)], dtype=np.float32)
        # There before the first batch, so that none waits for a copy from memory that isn't pinned.
        self._scale_there = torch.from_numpy(self._scale).to(device).view(CHANNELS, 1, 1)
        self._shift_there = torch.from_numpy(self._shift).to(device).view(CHANNELS, 1, 1)

    def build(self, images: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the pixel values of uint8 images [frames, H, W, 3] on this builder's device, without waiting for it.

        fixed   float32 [all frames, 3, size, size]
        native  float32 [patches, 3 * temporal_patch * patch * patch]: image after image; in each, time after time;
                there the patches that make one token stand together, row by row, and so do the tokens. A patch
                holds channels, frames, rows, columns. That's what Qwen2-VL's processors return.

        With native, a single frame is repeated to `temporal_patch`; of several, there are a multiple of that.
        """
        if self._on_host:
            return torch.from_numpy(self._host_values([image.numpy() for image in images]))
        return device_values(images, self._rule, self._scale_there, self._shift_there)

    def _host_values(self, images: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        rule, scale, shift = self._rule, self._scale, self._shift
        if isinstance(rule, FixedRule):
            return fixed_values(images, size=rule.size, scale=scale, shift=shift)
        return native_values(
            images, patch=rule.patch, merge=rule.merge, depth=rule.temporal_patch, scale=scale, shift=shift
        )


def device_values(
    images: Sequence[torch.Tensor], rule: ResizeRule, scale: torch.Tensor, shift: torch.Tensor
) -> torch.Tensor:
    """Return what PixelBuilder.build does, by torch's operations; `scale` and `shift` [3, 1, 1] are on the device."""
    if isinstance(rule, FixedRule):
        return _fixed(images, rule.size, scale, shift)
    return _native(images, rule, scale, shift)


def _fixed(images: Sequence[torch.Tensor], size: int, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    frames = [frame for image in images for frame in image]
    values = torch.empty((len(frames), CHANNELS, size, size), dtype=torch.float32, device=scale.device)
    for value, frame in zip(values, frames, strict=True):
        value.copy_(frame.permute(2, 0, 1)).mul_(scale).add_(shift)
    return values


def _native(images: Sequence[torch.Tensor], rule: NativeRule, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    side, merge, depth = rule.patch, rule.merge, rule.temporal_patch
    counts = [-(-image.shape[0] // depth) * image.shape[1] * image.shape[2] // side**2 for image in images]
    values = torch.empty((sum(counts), CHANNELS, depth, side**2), dtype=torch.float32, device=scale.device)
    for value, image, count in zip(torch.split(values, counts), images, counts, strict=True):
        frames, height, width, _ = image.shape
        held = min(frames, depth)
        rows, columns = height // (merge * side), width // (merge * side)
        tiles = image.view(frames // held, held, rows, merge, side, columns, merge, side, CHANNELS)
        patches = tiles.permute(0, 2, 5, 3, 6, 8, 1, 4, 7).reshape(count, CHANNELS, held, side**2)
        value.copy_(patches.expand(-1, -1, depth, -1)).mul_(scale).add_(shift)
    return values.view(len(values), CHANNELS * depth * side**2)


def grid_thw(geometries: Sequence[Geometry]) -> NDArray[np.int64]:
    """Return each image's patches over time, height and width, int64 [n, 3], on the host."""
    grids = [(image.grid_t, image.grid_h, image.grid_w) for image in geometries]
    return np.array(grids, dtype=np.int64).reshape(len(grids), 3)
