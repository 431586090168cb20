"""From resized uint8 images to a model's `pixel_values`, on the images' device: one code path for every device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from zephon.images.rules import FixedRule, Geometry, NativeRule, ResizeRule

CHANNELS = 3


class PixelBuilder:
    """Builds pixel values by a resize rule; made once per device, so that a batch uploads its images and nothing else.

    A value is level * scale + shift in float32, rounded after each of the two, so that devices agree to the last
    bit; (level / 255 - mean) / std, to about 1e-6.
    """

    def __init__(self, rule: ResizeRule, *, device: torch.device) -> None:
        self._rule = rule
        self._device = device
        scale = [1 / (255 * std) for std in rule.std]
        shift = [-mean / std for mean, std in zip(rule.mean, rule.std, strict=True)]
        self._scale = torch.tensor(scale, dtype=torch.float32, device=device).view(CHANNELS, 1, 1)
        self._shift = torch.tensor(shift, dtype=torch.float32, device=device).view(CHANNELS, 1, 1)

    def build(self, images: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the pixel values of uint8 images [frames, H, W, 3] on this builder's device, without waiting for it.

        fixed   float32 [all frames, 3, size, size]
        native  float32 [patches, 3 * temporal_patch * patch * patch]: image after image; in each, time after time;
                there the patches that make one token stand together, row by row, and so do the tokens. A patch
                holds channels, frames, rows, columns. That's what Qwen2-VL's processors return.

        With native, a single frame is repeated to `temporal_patch`; of several, there are a multiple of that.
        """
        if isinstance(self._rule, FixedRule):
            return self._fixed(images, self._rule.size)
        return self._native(images, self._rule)

    def _fixed(self, images: Sequence[torch.Tensor], size: int) -> torch.Tensor:
        frames = [frame for image in images for frame in image]
        values = torch.empty((len(frames), CHANNELS, size, size), dtype=torch.float32, device=self._device)
        for value, frame in zip(values, frames, strict=True):
            # Transposed in bytes and then widened: on a CPU a third of the time of both at once.
            value.copy_(frame.permute(2, 0, 1).contiguous()).mul_(self._scale).add_(self._shift)
        return values

    def _native(self, images: Sequence[torch.Tensor], rule: NativeRule) -> torch.Tensor:
        side, merge, depth = rule.patch, rule.merge, rule.temporal_patch
        times = [-(-image.shape[0] // depth) for image in images]
        cells = [image.shape[1] * image.shape[2] // side**2 for image in images]
        counts = [time * cell for time, cell in zip(times, cells, strict=True)]
        width = CHANNELS * depth * side**2
        values = torch.empty((sum(counts), width), dtype=torch.float32, device=self._device)
        for value, image, time, cell in zip(torch.split(values, counts), images, times, cells, strict=True):
            frames, height, wide, _ = image.shape
            planes = image.permute(0, 3, 1, 2).contiguous()
            tiles = planes.view(
                time,
                frames // time,
                CHANNELS,
                height // (merge * side),
                merge,
                side,
                wide // (merge * side),
                merge,
                side,
            )
            patches = tiles.permute(0, 3, 6, 4, 7, 2, 1, 5, 8).reshape(time * cell, CHANNELS, frames // time, side**2)
            target = value.view(time * cell, CHANNELS, depth, side**2)
            target.copy_(patches.expand(-1, -1, depth, -1)).mul_(self._scale).add_(self._shift)
        return values


def grid_thw(geometries: Sequence[Geometry]) -> NDArray[np.int64]:
    """Return each image's patches over time, height and width, int64 [n, 3], on the host."""
    grids = [(image.grid_t, image.grid_h, image.grid_w) for image in geometries]
    return np.array(grids, dtype=np.int64).reshape(len(grids), 3)
