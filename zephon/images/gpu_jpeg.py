"""JPEG decoding on a CUDA device by torchvision's nvJPEG; all else, and what it refuses, on the CPU.

Its pixels are not those of libjpeg to the last bit. Nothing of the order depends on them: digests are of compressed
bytes and geometry.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from zephon.errors import ConfigError
from zephon.images.decode import WHITE, Color, decode
from zephon.images.info import ImageInfo
from zephon.images.rules import Geometry

# Compressed bytes, uint8 [n], to uint8 [3, height, width] on the device.
DecodePlanes = Callable[[torch.Tensor], torch.Tensor]


def gpu_decoder(*, place: str) -> GpuDecoder:
    """Return a decoder on the current CUDA device; raises ConfigError, with what is missing, where it can't work."""
    if not torch.cuda.is_available():
        raise ConfigError(f"{place}: torch sees no CUDA device here; set decoder: cpu or auto")
    try:
        io = import_module("torchvision.io")
    except (ImportError, RuntimeError, OSError) as error:
        # A torchvision that was built for another torch fails with any of these.
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"{place}: decoding on the GPU needs torchvision ({type(error).__name__}: {reason}); install the release "
            "that belongs to your torch, or set decoder: cpu"
        ) from error
    device = torch.device("cuda", torch.cuda.current_device())

    def planes(data: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = io.decode_jpeg(data, mode=io.ImageReadMode.RGB, device=device)
        return result

    return GpuDecoder(planes)


class GpuDecoder:
    """Called as zephon.images.decode.decode is, and may be by several threads."""

    def __init__(self, planes: DecodePlanes) -> None:
        self._planes = planes

    def __call__(
        self, data: bytes | memoryview, info: ImageInfo, geometry: Geometry, *, background: Color = WHITE
    ) -> NDArray[np.uint8]:
        """Return what `decode` returns, to a level or so in a JPEG; raises ImageError where `decode` does."""
        if info.format == "jpeg" and info.components in (1, 3):
            try:
                planes = self._planes(torch.frombuffer(bytearray(data), dtype=torch.uint8))
            except RuntimeError:
                # Kinds that the GPU doesn't know (arithmetic coding, 4:1:0, …), or damage: the CPU tells them apart.
                planes = None
            width, height = info.stored_size
            if planes is not None and planes.shape == (3, height, width):
                return _resized(planes, info.orientation, geometry)
        return decode(data, info, geometry, background=background)


def _resized(planes: torch.Tensor, orientation: int, geometry: Geometry) -> NDArray[np.uint8]:
    with torch.inference_mode():
        # As zephon.images.orient does it with rows and columns.
        if orientation > 4:
            planes = planes.transpose(1, 2)
        if orientation in (2, 3, 6, 7):
            planes = planes.flip(2)
        if orientation in (3, 4, 7, 8):
            planes = planes.flip(1)
        if planes.shape[1:] != (geometry.height, geometry.width):
            size: Any = [geometry.height, geometry.width]
            levels = torch.ops.aten._upsample_bicubic2d_aa(planes[None].float(), size, False)[0]
            planes = levels.round_().clamp_(0, 255).to(torch.uint8)
        return planes.permute(1, 2, 0).contiguous().cpu().numpy()
