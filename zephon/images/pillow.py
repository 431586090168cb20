"""Pixels by Pillow: all formats, modes and oddities that the quick way doesn't know."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from zephon.images.info import ImageError, ImageInfo, one_line
from zephon.images.orient import orient

Color = tuple[int, int, int]
# The classes themselves: Image.open would import every plugin, let any of them try, and warn of large images.
PLUGINS = {
    "jpeg": ("PIL.JpegImagePlugin", "JpegImageFile"),
    "png": ("PIL.PngImagePlugin", "PngImageFile"),
    "gif": ("PIL.GifImagePlugin", "GifImageFile"),
    "webp": ("PIL.WebPImagePlugin", "WebPImageFile"),
    "bmp": ("PIL.BmpImagePlugin", "BmpImageFile"),
    "tiff": ("PIL.TiffImagePlugin", "TiffImageFile"),
}
TRANSPARENT = ("RGBA", "RGBa", "LA", "La", "PA")


def decode_by_pillow(data: bytes, info: ImageInfo, *, background: Color) -> NDArray[np.uint8]:
    """Return an image's first frame upright as uint8 RGB [H, W, 3], what is transparent laid onto `background`.

    CMYK by Pillow's plain conversion, 16-bit grey by its upper byte. Raises ImageError.
    """
    module, name = PLUGINS[info.format]
    plugin = getattr(import_module(module), name)
    try:
        image = plugin(io.BytesIO(data))
        # A TIFF's size is that of the upright image, and so are its pixels.
        expected = (info.width, info.height) if info.format == "tiff" else info.stored_size
        if image.size != expected:
            raise ImageError(f"has {image.size} pixels by its decoder, but {expected} by its header")
        image.load()
        pixels = _rgb(image, background)
    except (ImageError, MemoryError, Warning):
        # Not the image's fault: the machine's, or a warning that the user has made an error.
        raise
    except Exception as error:  # a decoder may raise anything on damaged bytes
        raise ImageError(f"can't be decoded as {info.format}: {one_line(error)}") from error
    pixels = orient(pixels, 1 if info.format == "tiff" else info.orientation)
    if pixels.shape != (info.height, info.width, 3):
        raise ImageError(f"has {pixels.shape[:2]} pixels once decoded, not ({info.height}, {info.width})")
    return pixels


def _rgb(image: Image.Image, background: Color) -> NDArray[np.uint8]:
    if image.mode.startswith("I;16") or image.mode == "I":
        # Pillow's own conversion clips at 255.
        wide = np.asarray(image)
        if wide.size and (wide.min() < 0 or wide.max() > 0xFFFF):
            raise ImageError("has grey values of more than 16 bits; convert it")
        grey = (wide >> 8).astype(np.uint8)
        return np.repeat(grey[:, :, None], 3, axis=2)
    if image.mode == "F":
        raise ImageError("has floating-point pixels, whose range nobody knows; convert it")
    if image.mode in TRANSPARENT or "transparency" in image.info:
        full = image.convert("RGBA")
        under = Image.new("RGBA", full.size, (*background, 255))
        under.alpha_composite(full)
        image = under
    result: Any = np.asarray(image.convert("RGB"))
    return np.asarray(result, dtype=np.uint8)
