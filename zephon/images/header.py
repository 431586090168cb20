"""An image's size from its header, without decoding a pixel and without Pillow."""

from __future__ import annotations

import struct

from zephon.images.exif import read_tiff
from zephon.images.info import ImageError, ImageInfo
from zephon.images.jpeg_header import read_jpeg
from zephon.images.raster_headers import read_bmp, read_gif, read_png
from zephon.images.webp_header import read_webp

__all__ = ["ImageError", "ImageInfo", "read_header"]

# By their first bytes; names and declared types of images are often wrong.
READERS = (
    (b"\xff\xd8\xff", read_jpeg),
    (b"\x89PNG\r\n\x1a\n", read_png),
    (b"GIF87a", read_gif),
    (b"GIF89a", read_gif),
    (b"BM", read_bmp),
    (b"II*\0", read_tiff),
    (b"MM\0*", read_tiff),
)


def read_header(data: bytes | memoryview, *, max_pixels: int) -> ImageInfo:
    """Return what the header of an image says: JPEG, PNG, GIF, WebP, BMP or TIFF, told by its first bytes.

    Microseconds an image, and no memory to speak of, whatever size the header claims. Finds that a file was
    cut off (but in TIFF); other damage behind the header shows when the image is decoded.
    Raises ImageError where the bytes are no such image, or have no or more than `max_pixels` pixels.
    """
    data = bytes(data)
    head = data[:16]
    read = next((read for magic, read in READERS if head.startswith(magic)), None)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        read = read_webp
    if read is None:
        what = f"starts with {head[:8]!r}" if head else "holds no bytes"
        raise ImageError(f"{what}, and is no JPEG, PNG, GIF, WebP, BMP or TIFF image")
    try:
        info = read(data)
    except (struct.error, IndexError):
        raise ImageError(f"was cut off in its header, after {len(data):,} bytes") from None
    pixels = info.width * info.height
    if not pixels:
        raise ImageError(f"has no pixels: {info.width} x {info.height}")
    if pixels > max_pixels:
        raise ImageError(f"has {info.width:,} x {info.height:,} pixels, more than max_pixels={max_pixels:,}")
    return info
