"""Antialiased bicubic resize of uint8 pixels: the one module outside collate/ that imports torch.

Torch's kernel is an own one for uint8 and works as Pillow's does, several times quicker. It runs in the
calling thread alone and without the interpreter lock; no thread setting of torch is read or changed.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray


def resize(pixels: NDArray[np.uint8], *, height: int, width: int) -> NDArray[np.uint8]:
    """Return uint8 [H, W, 3] pixels at another size: bicubic (a = -0.5), antialiased where that makes it smaller.

    Within 0.01 levels on average of Pillow's bicubic resize. The same on equal processors with equal releases of
    torch; without AVX2 another kernel runs, and single pixels may differ by a level.
    """
    stored_height, stored_width, _ = pixels.shape
    if (stored_height, stored_width) == (height, width):
        return pixels
    # These strides say "channels last" without doubt, for which there is a kernel that copies nothing. Those of
    # permute()[None] don't: with a single image they are taken for channels first, several times slower.
    area = stored_height * stored_width
    image = torch.from_numpy(np.require(pixels, requirements=["C", "W"])).as_strided(
        (1, 3, stored_height, stored_width), (3 * area, 1, 3 * stored_width, 3)
    )
    with torch.inference_mode():
        result = torch.ops.aten._upsample_bicubic2d_aa(image, [height, width], False)
    return np.ascontiguousarray(result[0].permute(1, 2, 0).numpy())
