"""Pixel values on the CPU: to the last bit what zephon.collate.images builds elsewhere.

Torch would share such large operations out to its threads, which wait for each other in busy loops: next to workers
that decode on the same cores, all took four times the processor time.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from zephon.native import compiled

kernels = compiled("kernels")
CHANNELS = 3
Floats = NDArray[np.float32]
Frames = NDArray[np.uint8]


def fixed_values(images: Sequence[Frames], *, size: int, scale: Floats, shift: Floats) -> Floats:
    """Return float32 [all frames, 3, size, size] of uint8 images [frames, size, size, 3]."""
    frames = [frame for image in images for frame in image]
    values = _empty((len(frames), CHANNELS, size, size))
    for value, frame in zip(values, frames, strict=True):
        if kernels is not None:
            kernels.fill_fixed(np.ascontiguousarray(frame), scale, shift, value)
            continue
        for channel in range(CHANNELS):
            _normalise(frame[:, :, channel], scale[channel], shift[channel], value[channel])
    return values


def native_values(
    images: Sequence[Frames], *, patch: int, merge: int, depth: int, scale: Floats, shift: Floats
) -> Floats:
    """Return float32 [patches, 3 * depth * patch * patch] of uint8 images [frames, H, W, 3].

    Ordered as PixelBuilder says.
    """
    counts = [-(-len(image) // depth) * image.shape[1] * image.shape[2] // patch**2 for image in images]
    values = _empty((sum(counts), CHANNELS, depth, patch**2))
    stop = 0
    for image, count in zip(images, counts, strict=True):
        start, stop = stop, stop + count
        if kernels is not None:
            pixels = np.ascontiguousarray(image)
            kernels.fill_patches(pixels, scale, shift, values[start:stop], patch=patch, merge=merge)
            continue
        frames, height, width, _ = image.shape
        held = min(frames, depth)
        rows, columns = height // (merge * patch), width // (merge * patch)
        tiles = image.reshape(frames // held, held, rows, merge, patch, columns, merge, patch * CHANNELS)
        # Whole lines of a patch at a time: time, rows, columns, rows and columns in a token; then frames and lines.
        lines = np.ascontiguousarray(tiles.transpose(0, 2, 5, 3, 6, 1, 4, 7)).reshape(count, held, patch**2, CHANNELS)
        target = values[start:stop]
        for channel in range(CHANNELS):
            for frame in range(held):
                _normalise(lines[:, frame, :, channel], scale[channel], shift[channel], target[:, channel, frame])
            target[:, channel, held:] = target[:, channel, :1]
    return values.reshape(len(values), CHANNELS * depth * patch**2)


def _empty(shape: tuple[int, ...]) -> Floats:
    """Return float32 memory to be filled, from Arrow's allocator.

    That hands freed memory out again; malloc has tens of megabytes mapped and cleared anew for each batch.
    """
    return np.frombuffer(pa.allocate_buffer(4 * prod(shape)), np.float32).reshape(shape)


def _normalise(levels: Frames, scale: np.float32, shift: np.float32, out: Floats) -> None:
    np.multiply(levels, scale, out=out, dtype=np.float32)
    np.add(out, shift, out=out)
