"""TIFF's tag folders: the orientation in EXIF data, and a TIFF file's own header [TIFF 6.0]."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from zephon.images.info import ImageError, ImageInfo, turned

WIDTH, HEIGHT, ORIENTATION = 256, 257, 274
# Where strips and tiles of pixels lie, and their sizes.
PIECES = ((273, 279), (324, 325))
SHORT, LONG = 3, 4
BYTES = {1: 1, 2: 1, SHORT: 2, LONG: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8}


def orientation_of(exif: bytes) -> int:
    """Return EXIF data's orientation, 1 to 8; 1 where it says none or is damaged, as viewers do."""
    try:
        for tag, kind, count, place in _entries(exif):
            if tag == ORIENTATION:
                return _orientation(_values(exif, kind, count, place))
    except (ImageError, struct.error):
        pass
    return 1


def read_tiff(data: bytes) -> ImageInfo:
    """Return what a TIFF file's first folder says; all of its tags and pixels have to lie in the file.

    Raises ImageError or struct.error.
    """
    wanted = {WIDTH, HEIGHT, ORIENTATION, *PIECES[0], *PIECES[1]}
    tags: dict[int, tuple[int, ...]] = {}
    for tag, kind, count, place in _entries(data):
        if place + count * BYTES.get(kind, 0) > len(data):
            raise ImageError(f"is a TIFF image that was cut off after {len(data):,} bytes")
        if tag in wanted and count:
            tags[tag] = _values(data, kind, count, place)
    if WIDTH not in tags or HEIGHT not in tags:
        raise ImageError("is a TIFF image without a size")
    for offsets, sizes in PIECES:
        ends = map(sum, zip(tags.get(offsets, ()), tags.get(sizes, ()), strict=False))
        if max(ends, default=0) > len(data):
            raise ImageError(f"is a TIFF image that was cut off after {len(data):,} bytes")
    return turned("tiff", tags[WIDTH][0], tags[HEIGHT][0], _orientation(tags.get(ORIENTATION, (1,))))


def _orientation(values: tuple[int, ...]) -> int:
    return values[0] if values and 1 <= values[0] <= 8 else 1


def _entries(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield (tag, type, number of values, their place) of each entry of the first folder."""
    order = _order(data)
    (start,) = struct.unpack_from(f"{order}I", data, 4)
    (num,) = struct.unpack_from(f"{order}H", data, start)
    for entry in range(start + 2, start + 2 + 12 * num, 12):
        tag, kind, count = struct.unpack_from(f"{order}HHI", data, entry)
        place = entry + 8
        if count * BYTES.get(kind, 0) > 4:
            (place,) = struct.unpack_from(f"{order}I", data, place)
        yield tag, kind, count, place


def _values(data: bytes, kind: int, count: int, place: int) -> tuple[int, ...]:
    """Return an entry's values where they are whole numbers of 16 or 32 bits, else none."""
    if kind not in (SHORT, LONG) or place + count * BYTES[kind] > len(data):
        return ()
    return struct.unpack_from(f"{_order(data)}{count}{'H' if kind == SHORT else 'I'}", data, place)


def _order(data: bytes) -> str:
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(data[:4])
    if order is None:
        raise ImageError("starts with no TIFF header")
    return order
