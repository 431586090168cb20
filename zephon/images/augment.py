"""Changes of an image's pixels, for `augment`: each keeps the shape and draws from the sample's generator alone.

{function: "zephon.images.augment:flip"}, or a function of your own with the same parameters.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from zephon.random import SampleRandom


def flip(pixels: NDArray[np.uint8], rng: SampleRandom, *, chance: float = 0.5) -> NDArray[np.uint8]:
    """Return the pixels [H, W, 3], mirrored left to right with a probability of `chance`."""
    return np.ascontiguousarray(pixels[:, ::-1]) if rng.random() < chance else pixels


def crop(pixels: NDArray[np.uint8], rng: SampleRandom, *, least: float = 0.5) -> NDArray[np.uint8]:
    """Return a rectangle of the pixels [H, W, 3], each side at least `least` of the whole, resized to all of it."""
    from zephon.images.resize import resize  # torch, for those who decode only

    height, width, _ = pixels.shape
    rows, columns = (rng.integers(max(1, min(side, round(least * side))), side + 1) for side in (height, width))
    top, left = rng.integers(0, height - rows + 1), rng.integers(0, width - columns + 1)
    return resize(pixels[top : top + rows, left : left + columns], height=height, width=width)
