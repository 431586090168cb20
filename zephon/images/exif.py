"""TIFF's tag folders: the orientation in EXIF data, and a TIFF file's own header."""

from __future__ import annotations

import struct

from zephon.images.info import ImageError, ImageInfo, turned

WIDTH, HEIGHT, ORIENTATION = 256, 257, 274
SHORT, LONG = 3, 4


def read_tags(data: bytes) -> dict[int, int]:
    """Return the first value of each whole-number tag (16 or 32 bits) in the first folder of TIFF data.

    Raises ImageError or struct.error where there is no such folder.
    """
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(data[:4])
    if order is None:
        raise ImageError("starts with no TIFF header")
    (start,) = struct.unpack_from(f"{order}I", data, 4)
    (num,) = struct.unpack_from(f"{order}H", data, start)
    tags: dict[int, int] = {}
    for entry in range(start + 2, start + 2 + 12 * num, 12):
        tag, kind, count = struct.unpack_from(f"{order}HHI", data, entry)
        # More values than four bytes hold lie elsewhere; none of ours has more than one.
        if kind in (SHORT, LONG) and count == 1:
            (tags[tag],) = struct.unpack_from(f"{order}{'H' if kind == SHORT else 'I'}", data, entry + 8)
    return tags


def orientation_of(exif: bytes) -> int:
    """Return EXIF data's orientation, 1 to 8; 1 where it says none or is damaged, as viewers do."""
    try:
        value = read_tags(exif).get(ORIENTATION, 1)
    except (ImageError, struct.error):
        return 1
    return value if 1 <= value <= 8 else 1


def read_tiff(data: bytes) -> ImageInfo:
    """Return what a TIFF file's first folder says. Raises ImageError or struct.error."""
    tags = read_tags(data)
    if WIDTH not in tags or HEIGHT not in tags:
        raise ImageError("is a TIFF image without a size")
    orientation = tags.get(ORIENTATION, 1)
    orientation = orientation if 1 <= orientation <= 8 else 1
    return turned("tiff", tags[WIDTH], tags[HEIGHT], orientation)
