"""The headers of clips: MP4, WebM and Matroska, animated GIF. No library is needed and no frame is decoded.

Tokens depend on what is read here, and so on the clip's bytes alone: not on the release of a decoder.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from fractions import Fraction
from typing import Literal

import msgspec

from zephon.images.info import ImageError
from zephon.images.raster_headers import palette_bytes, skip_blocks

ClipFormat = Literal["mp4", "webm", "gif"]
# A track's matrix (a, b, c, d), and the EXIF orientation that turns pixels likewise.
TURNS = {(0, 1, -1, 0): 6, (-1, 0, 0, -1): 3, (0, -1, 1, 0): 8}
# Each lies in the one before it.
BOXES = ("moov", "trak", "mdia", "minf", "stbl")
# EBML elements that are walked through, and those that are read [RFC 9559].
SEGMENT, CLUSTER, INFO, TRACKS, TRACK, VIDEO, GROUP = 0x18538067, 0x1F43B675, 0x1549A966, 0x1654AE6B, 0xAE, 0xE0, 0xA0
MASTERS = (SEGMENT, CLUSTER, INFO, TRACKS, TRACK, VIDEO, GROUP)
SCALE, DURATION, NUMBER, KIND, WIDTH, HEIGHT, SIMPLE_BLOCK, BLOCK = 0x2AD7B1, 0x4489, 0xD7, 0x83, 0xB0, 0xBA, 0xA3, 0xA1

NUMBERS = (SCALE, NUMBER, KIND, WIDTH, HEIGHT)


class ClipInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a clip's header says of its first video track.

    format       mp4 | webm (any Matroska) | gif
    width        pixels, once `orientation` is applied
    height       pixels, once `orientation` is applied
    orientation  as EXIF counts them: 1, 3, 6 or 8
    frames       stored frames, at least 1
    seconds      how long it plays; None: not said
    """

    format: ClipFormat
    width: int
    height: int
    frames: int
    seconds: Fraction | None
    orientation: int = 1


def read_clip_header(data: bytes, *, max_pixels: int) -> ClipInfo:
    """Return what the header of a clip says, its format told by its first bytes.

    Raises ImageError where the bytes are no such clip, were cut off, or where a frame has no or more than `max_pixels`
    pixels.
    """
    try:
        if data[4:8] == b"ftyp":
            info = _read_mp4(data)
        elif data[:4] == b"\x1a\x45\xdf\xa3":
            info = _read_webm(data)
        elif data[:6] in (b"GIF87a", b"GIF89a"):
            info = _read_gif(data)
        else:
            what = f"starts with {data[:8]!r}" if data else "holds no bytes"
            raise ImageError(f"{what}, and is no MP4, WebM, Matroska or GIF clip")
    except (struct.error, IndexError):
        raise ImageError(f"was cut off after {len(data):,} bytes") from None
    if not info.width * info.height * info.frames:
        raise ImageError(f"has no pixels: {info.width} x {info.height}, {info.frames} frames")
    if info.width * info.height > max_pixels:
        raise ImageError(f"has {info.width:,} x {info.height:,} pixels, more than max_pixels={max_pixels:,}")
    return info


def _read_mp4(data: bytes) -> ClipInfo:
    """Return what the boxes of the first video track say [ISO/IEC 14496-12]."""
    track: dict[str, bytes] = {}
    for name, box in _boxes(data, 0, len(data)):
        if name == "trak":
            if track.get("hdlr", b"")[8:12] == b"vide":
                break
            track = {}
        track.setdefault(name, box)
    if track.get("hdlr", b"")[8:12] != b"vide":
        raise ImageError("is an MP4 without a video track")
    if not {"tkhd", "mdhd", "stsd"} <= set(track) or not {"stsz", "stz2"} & set(track):
        raise ImageError("is an MP4 whose video track lacks a table")
    width, height = struct.unpack_from(">HH", track["stsd"], 8 + 32)
    (frames,) = struct.unpack_from(">I", track["stsz"] if "stsz" in track else track["stz2"], 8)
    wide = track["mdhd"][0] == 1
    scale, ticks = struct.unpack_from(">IQ" if wide else ">II", track["mdhd"], 20 if wide else 12)
    matrix = struct.unpack_from(">9i", track["tkhd"], 52 if track["tkhd"][0] == 1 else 40)
    sign = tuple((value > 0) - (value < 0) for value in (matrix[0], matrix[1], matrix[3], matrix[4]))
    orientation = TURNS.get(sign, 1)
    if not frames:
        raise ImageError("is an MP4 whose frames lie in fragments; write it anew without (ffmpeg -c copy)")
    if orientation in (6, 8):
        width, height = height, width
    return ClipInfo(
        format="mp4",
        width=width,
        height=height,
        frames=frames,
        seconds=Fraction(ticks, scale) if scale and ticks else None,
        orientation=orientation,
    )


def _boxes(data: bytes, start: int, stop: int, *, depth: int = 0) -> Iterator[tuple[str, bytes]]:
    """Yield the boxes in a part of an MP4, and behind each of BOXES, where it belongs, the boxes in it."""
    while start < stop:
        size, name = struct.unpack_from(">I4s", data, start)
        body = start + 8
        end = start + size if size else stop
        if size == 1:
            end = start + struct.unpack_from(">Q", data, body)[0]
            body += 8
        if end > stop or end < body:
            raise ImageError(f"is an MP4 that was cut off, or damaged, at byte {start:,}")
        kind = name.decode("latin-1")
        if kind in BOXES[depth : depth + 1]:
            yield kind, b""
            yield from _boxes(data, body, end, depth=depth + 1)
        elif kind != "mdat":
            yield kind, data[body:end]
        start = end


def _read_webm(data: bytes) -> ClipInfo:
    """Return what a Matroska file's elements say of its first video track; counts that track's blocks."""
    track: dict[int, int] = {}
    scale, ticks, frames = 1_000_000, 0.0, 0
    at = 0
    while at < len(data):
        # An id keeps the bits that tell its length; a size doesn't.
        id_, at, _ = _number(data, at, keep=True)
        size, at, unknown = _number(data, at, keep=False)
        if id_ in MASTERS:
            # Its elements are walked next, and so its size, which a live stream doesn't know, isn't needed.
            if id_ == TRACK and track.get(KIND) != 1:
                track = {}
            continue
        if unknown or at + size > len(data) or (id_ in NUMBERS and size > 8):
            raise ImageError(f"is a WebM that was cut off, or damaged, at byte {at:,}")
        if id_ == SCALE:
            scale = int.from_bytes(data[at : at + size])
        elif id_ in NUMBERS:
            track.setdefault(id_, int.from_bytes(data[at : at + size]))
        elif id_ == DURATION:
            (ticks,) = struct.unpack(">f" if size == 4 else ">d", data[at : at + size])
        elif id_ in (SIMPLE_BLOCK, BLOCK):
            frames += _number(data, at, keep=False)[0] == track.get(NUMBER)
        at += size
    if track.get(KIND) != 1:
        raise ImageError("is a WebM without a video track")
    known = 0 < ticks < 1e15
    return ClipInfo(
        format="webm",
        width=track.get(WIDTH, 0),
        height=track.get(HEIGHT, 0),
        frames=frames,
        seconds=Fraction(ticks) * scale / 10**9 if known else None,
    )


def _number(data: bytes, at: int, *, keep: bool) -> tuple[int, int, bool]:
    """Return a number of variable length, where it ends, and whether all its bits are set: an unknown size."""
    length = 9 - data[at].bit_length()
    if length > 8 or at + length > len(data):
        raise ImageError(f"is a WebM that was cut off, or damaged, at byte {at:,}")
    number = int.from_bytes(data[at : at + length])
    value = number & ((1 << 7 * length) - 1)
    return number if keep else value, at + length, value == (1 << 7 * length) - 1


def _read_gif(data: bytes) -> ClipInfo:
    """Return what a GIF's blocks say; times are hundredths of a second, and one below two is ten, as in browsers."""
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at = 13 + palette_bytes(flags)
    frames = hundredths = delay = 0
    while data[at] != 0x3B:
        if data[at] == 0x21:
            if data[at + 1] == 0xF9:
                (delay,) = struct.unpack_from("<H", data, at + 4)
            at = skip_blocks(data, at + 2)
        elif data[at] == 0x2C:
            frames += 1
            hundredths += delay if delay > 1 else 10
            at = skip_blocks(data, at + 11 + palette_bytes(data[at + 9]))
        else:
            raise ImageError(f"is a GIF clip with an unknown block {data[at]:#04x}")
    return ClipInfo(format="gif", width=width, height=height, frames=frames, seconds=Fraction(hundredths, 100))
