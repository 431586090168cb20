"""From compressed bytes to resized pixels on the host: deterministic, without the interpreter lock where it counts."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from zephon.errors import ConfigError
from zephon.images.info import ImageError, ImageInfo
from zephon.images.orient import orient
from zephon.images.rules import Geometry

Color = tuple[int, int, int]
WHITE: Color = (255, 255, 255)
NEEDED = ("PIL", "simplejpeg")


class Decode(Protocol):
    """What `decode` does, whoever does it."""

    def __call__(
        self, data: bytes | memoryview, info: ImageInfo, geometry: Geometry, *, background: Color = WHITE
    ) -> NDArray[np.uint8]: ...


def check_installed(*, place: str) -> None:
    """Raise ConfigError where the libraries that decode images aren't installed."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigError(f"{place} needs {' and '.join(missing)} to decode images; pip install Pillow simplejpeg")


def decode(
    data: bytes | memoryview, info: ImageInfo, geometry: Geometry, *, background: Color = WHITE
) -> NDArray[np.uint8]:
    """Return an image's pixels, uint8 RGB [geometry.height, geometry.width, 3] in C order, in memory of their own.

    `info` is what `read_header` said of the same bytes. Equal bytes give equal pixels with equal releases of
    Pillow, simplejpeg and torch. Takes three to eight bytes a stored pixel while it runs. Raises ImageError
    where the bytes behind the header are damaged.
    """
    from zephon.images.resize import resize  # torch, for those who decode only

    return resize(decode_full(data, info, background=background), height=geometry.height, width=geometry.width)


def choose_decoder(kind: Literal["cpu", "auto", "cuda"], *, place: str) -> Decode:
    """Return who decodes: `cpu`, `cuda`, or `auto`: the GPU where it can, else the CPU.

    Only the CPU's pixels are the same everywhere. Raises ConfigError where `cuda` can't work here.
    """
    if kind == "cpu":
        return decode
    from zephon.images.gpu_jpeg import gpu_decoder  # torch

    try:
        return gpu_decoder(place=place)
    except ConfigError:
        if kind == "cuda":
            raise
        return decode


def decode_full(data: bytes | memoryview, info: ImageInfo, *, background: Color = WHITE) -> NDArray[np.uint8]:
    """Return an image's pixels at their own size, upright: uint8 RGB [info.height, info.width, 3] in C order.

    The first frame of several. Transparent pixels lie on `background`. Colour profiles are not applied.
    """
    if info.format == "jpeg" and info.components in (1, 3):
        pixels = _decode_jpeg(data, info)
        if pixels is not None:
            return pixels
    from zephon.images.pillow import decode_by_pillow

    return decode_by_pillow(bytes(data), info, background=background)


def _decode_jpeg(data: bytes | memoryview, info: ImageInfo) -> NDArray[np.uint8] | None:
    """Return the pixels, or None where the quick decoder finds fault: Pillow has the last word on those."""
    import simplejpeg

    try:
        pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(data, "RGB", strict=True)
    except ValueError:
        return None
    width, height = info.stored_size
    if pixels.shape != (height, width, 3):
        raise ImageError(f"has {pixels.shape[:2]} pixels once decoded, but ({height}, {width}) by its header")
    return orient(pixels, info.orientation)
