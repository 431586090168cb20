"""The headers of PNG, GIF and BMP files. Each function raises ImageError, IndexError or struct.error."""

from __future__ import annotations

import struct

from zephon.images.exif import orientation_of
from zephon.images.info import ImageError, ImageInfo, turned


def read_png(data: bytes) -> ImageInfo:
    """Return what a PNG file's chunks say [W3C PNG]; walks all of them, so that a cut is found."""
    if data[12:16] != b"IHDR":
        raise ImageError("is a PNG image without a header")
    width, height = struct.unpack_from(">II", data, 16)
    orientation = 1
    at = 8
    size = len(data)
    pixels = False
    while at + 12 <= size:
        (length,) = struct.unpack_from(">I", data, at)
        kind = data[at + 4 : at + 8]
        if kind == b"IDAT":
            pixels = True
        elif kind == b"eXIf":
            orientation = orientation_of(data[at + 8 : at + 8 + length])
        elif kind == b"IEND":
            if not pixels:
                break
            return turned("png", width, height, orientation)
        at += 12 + length
    if at > size or pixels:
        raise ImageError(f"is a PNG image that was cut off: no end after {size:,} bytes")
    raise ImageError("is a PNG image without pixels")


def read_gif(data: bytes) -> ImageInfo:
    """Return the size of a GIF file's canvas [GIF89a]; walks to the end of its first frame."""
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at = 13 + palette_bytes(flags)
    while True:
        kind = data[at]
        if kind == 0x21:
            at = skip_blocks(data, at + 2)
        elif kind == 0x2C:
            left, top, across, down, flags = struct.unpack_from("<HHHHB", data, at + 1)
            skip_blocks(data, at + 11 + palette_bytes(flags))
            # A frame that sticks out widens the canvas, as browsers do.
            return turned("gif", max(width, left + across), max(height, top + down), 1)
        elif kind == 0x3B:
            raise ImageError("is a GIF image without a frame")
        else:
            raise ImageError(f"is a GIF image with an unknown block {kind:#04x}")


def read_bmp(data: bytes) -> ImageInfo:
    """Return the size that a BMP file's header says."""
    (start,) = struct.unpack_from("<I", data, 10)
    (header,) = struct.unpack_from("<I", data, 14)
    if header == 12:
        width, height, _, bits = struct.unpack_from("<HHHH", data, 18)
        compression = 0
    else:
        width, height, _, bits, compression = struct.unpack_from("<iiHHI", data, 18)
    width, height = abs(width), abs(height)
    if compression in (0, 3) and start + -(-width * bits // 32) * 4 * height > len(data):
        raise ImageError(f"is a BMP image that was cut off after {len(data):,} bytes")
    return turned("bmp", width, height, 1)


def palette_bytes(flags: int) -> int:
    """Return the bytes of the palette that a GIF's flags announce."""
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def skip_blocks(data: bytes, at: int) -> int:
    """Return where a GIF's data sub-blocks end that begin at `at`."""
    while data[at]:
        at += data[at] + 1
    return at + 1
