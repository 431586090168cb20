"""EXIF orientations: pixels as they are stored, turned and mirrored to how they are meant."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def orient(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Return stored pixels [h, w, 3] upright, in C order; for the orientations 5 to 8 sides change places.

    1 as stored, 2 mirrored, 3 turned by 180 degrees, 4 upside down mirrored; 5 to 8 the same after a transposition.
    """
    if orientation > 4:
        pixels = pixels.transpose(1, 0, 2)
    # After the transposition 6 (to be turned clockwise) mirrors its columns, 8 its rows, 7 both.
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)
