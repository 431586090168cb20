"""Resized pixels are Pillow's, from any thread, and nothing of torch's settings changes."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from odd_images import colours, save
from PIL import Image

from zephon.images.decode import decode
from zephon.images.header import read_header
from zephon.images.resize import resize
from zephon.images.rules import FixedRule, NativeRule

SIZES = [(640, 960), (333, 517), (1500, 1000), (1100, 700), (100, 80), (448, 448), (31, 2000), (1, 1), (1, 500), (2, 3)]
TARGETS = [(448, 448), (224, 336), (384, 384), (700, 56)]


def photograph(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    """Noise at every scale, about as photographs have it."""
    rng = np.random.default_rng(seed)
    total = np.zeros((height, width, 3))
    for level in range(8):
        small = rng.integers(0, 256, (max(1, height >> level), max(1, width >> level), 3), dtype=np.uint8)
        total += np.asarray(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)) * 2.0 ** (
            level - 8
        )
    return total.clip(0, 255).astype(np.uint8)


def by_pillow(pixels: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC))


def test_resized_pixels_are_within_a_hundredth_of_a_level_of_pillow_s() -> None:
    means = {}
    for size in SIZES:
        pixels = photograph(*size)
        for height, width in TARGETS:
            result = resize(pixels, height=height, width=width)
            difference = np.abs(result.astype(int) - by_pillow(pixels, height, width))
            assert difference.max() <= 2, (size, height, width)
            assert result.flags.c_contiguous
            means[size, height, width] = difference.mean()
    assert np.mean([*means.values()]) < 0.005
    # Weights have 16 bits, and a ratio such as 10:7 uses the same few for all pixels: their errors don't cancel out.
    assert max(means.values()) < 0.02, means


@pytest.mark.parametrize("rule", [FixedRule(size=448), NativeRule()], ids=["fixed", "native"])
@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_a_jpeg_decoded_and_resized_is_pillow_s(rule: FixedRule | NativeRule, orientation: int) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    data = save(photograph(700, 1100), "JPEG", quality=90, exif=exif)
    info = read_header(data, max_pixels=1 << 24)
    geometry = rule.plan(info)
    turn = {1: 0, 3: 2, 6: 3}[orientation]
    upright = np.rot90(np.asarray(Image.open(io.BytesIO(data)).convert("RGB")), turn)
    expected = by_pillow(np.ascontiguousarray(upright), geometry.height, geometry.width)
    pixels = decode(data, info, geometry)
    assert pixels.shape == (geometry.height, geometry.width, 3)
    assert np.abs(pixels.astype(int) - expected).mean() < 0.01


def test_the_same_size_is_no_work_and_read_only_pixels_are_fine() -> None:
    pixels = colours()
    assert resize(pixels, height=pixels.shape[0], width=pixels.shape[1]) is pixels
    pixels.flags.writeable = False
    mirrored = colours()[:, ::-1]
    assert resize(pixels, height=10, width=10).flags.writeable
    assert np.array_equal(resize(mirrored, height=20, width=20), resize(mirrored.copy(), height=20, width=20))


def test_threads_get_the_same_pixels_and_torch_s_threads_stay_as_they_are() -> None:
    images = [photograph(300, 400, seed) for seed in range(4)]
    alone = [resize(image, height=224, width=224) for image in images]
    before = torch.get_num_threads()
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda image: resize(image, height=224, width=224), images * 4))
    assert torch.get_num_threads() == before
    assert all(np.array_equal(a, b) for a, b in zip(alone * 4, together, strict=True))
