"""A WebP file's header [RFC 9649]."""

from __future__ import annotations

import struct

from zephon.images.exif import orientation_of
from zephon.images.info import ImageError, ImageInfo, turned


def read_webp(data: bytes) -> ImageInfo:
    """Return what a WebP file's chunks say. Raises ImageError, IndexError or struct.error."""
    (size,) = struct.unpack_from("<I", data, 4)
    if 8 + size > len(data):
        raise ImageError(f"is a WebP image that was cut off: {len(data):,} of {8 + size:,} bytes")
    kind = data[12:16]
    if kind == b"VP8 ":
        if data[23:26] != b"\x9d\x01\x2a":
            raise ImageError("is a WebP image without a key frame")
        width, height = struct.unpack_from("<HH", data, 26)
        # The upper two bits ask for a scaling that no decoder does.
        return turned("webp", width & 0x3FFF, height & 0x3FFF, 1)
    if kind == b"VP8L":
        (bits,) = struct.unpack_from("<I", data, 21)
        return turned("webp", (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1, 1)
    if kind != b"VP8X":
        raise ImageError(f"is a WebP image that starts with an unknown chunk {kind!r}")
    width = 1 + int.from_bytes(data[24:27], "little")
    height = 1 + int.from_bytes(data[27:30], "little")
    return turned("webp", width, height, _orientation(data, 8 + size) if data[20] & 0x08 else 1)


def _orientation(data: bytes, end: int) -> int:
    at = 12
    while at + 8 <= end:
        (length,) = struct.unpack_from("<I", data, at + 4)
        if data[at : at + 4] == b"EXIF":
            exif = data[at + 8 : at + 8 + length]
            # Some writers put JPEG's prefix before it.
            return orientation_of(exif[6:] if exif[:6] == b"Exif\0\0" else exif)
        at += 8 + length + length % 2
    return 1
