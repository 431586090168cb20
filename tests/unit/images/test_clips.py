"""Frames of clips: evenly spread, upright, laid onto the background; damage is an error in one line."""

from __future__ import annotations

import io

import numpy as np
import pytest
from clips import ENCODERS, clip, frame
from numpy.typing import NDArray
from PIL import Image

from zephon.images.clip_header import read_clip_header
from zephon.images.clips import decode_clip
from zephon.images.info import ImageError
from zephon.images.rules import FixedRule, Geometry

MOST = 1 << 20


def same(width: int, height: int) -> Geometry:
    """Return the geometry that leaves a frame as large as it is."""
    return (
        FixedRule(size=1, patch=1)
        .plan(read_clip_header(clip("gif", 1), max_pixels=MOST))
        ._replace(width=width, height=height)
    )


def frames_of(data: bytes, frames: int, *, background: tuple[int, int, int] = (255, 255, 255)) -> NDArray[np.uint8]:
    info = read_clip_header(data, max_pixels=MOST)
    plan = same(info.width, info.height)
    return decode_clip(data, info, plan, frames=frames, max_pixels=MOST, background=background)


@pytest.mark.parametrize("kind", [*ENCODERS, "vp8"])
@pytest.mark.parametrize(("count", "frames"), [(12, 12), (12, 4), (12, 5), (7, 4), (1, 1), (3, 6)])
def test_frames_are_evenly_spread(kind: str, count: int, frames: int) -> None:
    data = clip("webm", count, encoder="libvpx") if kind == "vp8" else clip(kind, count)
    pixels = frames_of(data, frames)
    assert pixels.shape == (frames, 24, 32, 3)
    assert pixels.dtype == np.uint8
    expected = np.stack([frame(number * count // frames) for number in range(frames)])
    # A GIF of this palette has four levels of blue.
    channels = slice(0, 2) if kind == "gif" else slice(0, 3)
    assert np.abs(pixels.astype(int) - expected)[..., channels].mean() < 8


def test_the_same_bytes_give_the_same_pixels_and_any_size() -> None:
    data = clip("webm", 12)
    info = read_clip_header(data, max_pixels=MOST)
    first, again = (decode_clip(data, info, same(20, 16), frames=4, max_pixels=MOST) for _ in range(2))
    assert first.shape == (4, 16, 20, 3)
    assert np.array_equal(first, again)


@pytest.mark.parametrize(("turn", "turns"), [(90, 1), (180, 2), (-90, 3)])
def test_a_turned_clip_is_upright(turn: int, turns: int) -> None:
    pixels = frames_of(clip("mp4", 2, turn=turn), 1)[0]
    assert np.abs(pixels.astype(int) - np.rot90(frame(0), turns)).mean() < 8


def test_transparent_pixels_lie_on_the_background() -> None:
    pictures = [Image.new("RGBA", (8, 8), (0, 0, 0, 0)) for _ in range(2)]
    for number, picture in enumerate(pictures):
        picture.putpixel((number, 0), (255, 0, 0, 255))
    buffer = io.BytesIO()
    pictures[0].save(buffer, "GIF", save_all=True, append_images=pictures[1:], disposal=2)
    pixels = frames_of(buffer.getvalue(), 1, background=(1, 2, 3))[0]
    assert pixels[0, 0].tolist() == [255, 0, 0]
    assert pixels[4, 4].tolist() == [1, 2, 3]


@pytest.mark.parametrize("kind", ENCODERS)
def test_damage_behind_the_header_is_an_image_error(kind: str) -> None:
    data = bytearray(clip(kind, 12))
    start = data.index({"mp4": b"mdat", "webm": b"\x1f\x43\xb6\x75", "gif": b"\x2c"}[kind]) + 40
    data[start : start + 200] = bytes(200) if kind != "gif" else b"\xff" * 200
    with pytest.raises(ImageError) as caught:
        frames_of(bytes(data), 12)
    assert "\n" not in str(caught.value)


def test_frames_larger_than_the_header_says_are_not_decoded() -> None:
    data = clip("webm", 3, width=640, height=480, encoder="libvpx")
    # PixelWidth and PixelHeight.
    small = data.replace(b"\xb0\x82\x02\x80", b"\xb0\x82\x00\x20").replace(b"\xba\x82\x01\xe0", b"\xba\x82\x00\x20")
    info = read_clip_header(small, max_pixels=2000)
    assert (info.width, info.height) == (32, 32)
    with pytest.raises(ImageError, match="can't be decoded as webm"):
        decode_clip(small, info, same(32, 32), frames=1, max_pixels=2000)
    assert decode_clip(small, info, same(32, 32), frames=1, max_pixels=MOST).shape == (1, 32, 32, 3)


def test_only_the_container_that_the_header_names_is_opened() -> None:
    # A playlist behind an MP4's first bytes: FFmpeg alone would guess by what follows.
    data = b"\0\0\0\x08ftyp" + b"#EXTM3U\n#EXTINF:1,\nfile:///etc/hostname\n"
    info = read_clip_header(clip("mp4", 2), max_pixels=MOST)
    with pytest.raises(ImageError, match="can't be decoded as mp4"):
        decode_clip(data, info, same(32, 24), frames=1, max_pixels=MOST)
