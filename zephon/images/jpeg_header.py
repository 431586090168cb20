"""A JPEG file's header: its markers up to the first scan [ITU-T T.81, annex B]."""

from __future__ import annotations

import re
import struct

from zephon.images.exif import orientation_of
from zephon.images.info import ImageError, ImageInfo, turned

# Start of frame 0 to 15, without the Huffman, extension and arithmetic tables among them.
FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
PROGRESSIVE = frozenset({0xC2, 0xC6, 0xCA, 0xCE})
# Markers without a length.
BARE = frozenset({0x01, *range(0xD0, 0xD9)})
SCAN, END, APP1 = 0xDA, 0xD9, 0xE1
EXIF = b"Exif\0\0"
# Searched for by re: bytes.count takes four times as long.
SCAN_BYTES = re.compile(rb"\xff\xda")
# Encoders write about 10. Each costs a pass over all of the image: a few kilobytes could take minutes.
MAX_SCANS = 200


def read_jpeg(data: bytes) -> ImageInfo:
    """Return what a JPEG file's markers say. Raises ImageError, IndexError or struct.error."""
    orientation = 0
    frame: tuple[int, int, int] | None = None
    progressive = False
    at = 2
    while True:
        at = _next_marker(data, at)
        marker = data[at]
        at += 1
        if marker in BARE:
            continue
        if marker in (SCAN, END):
            break
        (length,) = struct.unpack_from(">H", data, at)
        if marker in FRAMES and frame is None:
            height, width, components = struct.unpack_from(">HHB", data, at + 3)
            frame = width, height, components
            progressive = marker in PROGRESSIVE
        elif marker == APP1 and not orientation and data[at + 2 : at + 8] == EXIF:
            orientation = orientation_of(data[at + 8 : at + length])
        at += length
    if frame is None or marker == END:
        raise ImageError("is a JPEG image without a frame or a scan")
    if data.rfind(b"\xff\xd9", at) < 0:
        raise ImageError(f"is a JPEG image that was cut off: no end after {len(data):,} bytes")
    if progressive and (scans := len(SCAN_BYTES.findall(data, at)) + 1) > MAX_SCANS:
        raise ImageError(f"is a progressive JPEG image of {scans} scans; at most {MAX_SCANS} are decoded")
    width, height, components = frame
    return turned("jpeg", width, height, orientation or 1, components)


def _next_marker(data: bytes, at: int) -> int:
    """Return where the next marker's code stands, past what may lie or fill the space before it."""
    while True:
        # Some cameras write rubbish between segments, and decoders pass over it: hence no test that 0xFF stands here.
        at = data.find(b"\xff", at)
        if at < 0:
            raise ImageError("is a JPEG image without a scan")
        while data[at] == 0xFF:
            at += 1
        # 0xFF and 0: rubbish too.
        if data[at]:
            return at
