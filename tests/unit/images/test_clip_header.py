"""Headers of clips: what FFmpeg says of them, without it; cut off and hostile ones are errors in one line."""

from __future__ import annotations

import io
import struct
import time
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest
from clips import ENCODERS, clip
from hypothesis import given
from hypothesis import strategies as st

from zephon.images.clip_header import read_clip_header
from zephon.images.info import ImageError

MOST = 1 << 20
CLIPS = {
    **{kind: clip(kind, 9, width=48, height=20, rate=6) for kind in ENCODERS},
    "vp8": clip("webm", encoder="libvpx"),
    "one frame": clip("gif", 1),
}


def with_sound(kind: str) -> bytes:
    """Return a clip whose first track is sound."""
    buffer = io.BytesIO()
    codec = {"mp4": "aac", "webm": "libopus"}[kind]
    form, encoder, layout = ENCODERS[kind]
    with av.open(buffer, "w", format=form) as container:
        sound: Any = container.add_stream(codec, rate=48_000, layout="mono")
        stream: Any = container.add_stream(encoder, rate=10)
        stream.width, stream.height, stream.pix_fmt = 32, 24, layout
        for number in range(12):
            wave = av.AudioFrame.from_ndarray(np.zeros((1, 4800), np.int16), format="s16", layout="mono")
            wave.sample_rate, wave.pts = 48_000, 4800 * number
            container.mux(sound.encode(wave))
            container.mux(stream.encode(av.VideoFrame(32, 24, "yuv420p")))
        container.mux(sound.encode(None))
        container.mux(stream.encode(None))
    return buffer.getvalue()


@pytest.mark.parametrize("data", [*CLIPS.values(), with_sound("mp4"), with_sound("webm")])
def test_it_says_what_ffmpeg_says(data: bytes) -> None:
    info = read_clip_header(data, max_pixels=MOST)
    with av.open(io.BytesIO(data), "r") as container:
        stream = container.streams.video[0]
        assert (info.width, info.height) == (stream.codec_context.width, stream.codec_context.height)
        assert info.frames == sum(packet.size > 0 for packet in container.demux(stream))
        assert info.seconds is not None
        assert abs(info.seconds - Fraction(info.frames) / Fraction(stream.average_rate or 0)) < Fraction(1, 10)
    assert info.orientation == 1


@pytest.mark.parametrize(("turn", "orientation"), [(90, 8), (180, 3), (-90, 6)])
def test_a_turned_clip_has_its_upright_size(turn: int, orientation: int) -> None:
    info = read_clip_header(clip("mp4", 2, turn=turn), max_pixels=MOST)
    upright = (24, 32) if orientation > 4 else (32, 24)
    assert (info.width, info.height, info.orientation) == (*upright, orientation)


def live(data: bytes) -> bytes:
    """Return a WebM whose segment and clusters have unknown sizes, as one has that is written while it plays."""
    for id_ in (b"\x18\x53\x80\x67", b"\x1f\x43\xb6\x75"):
        at = data.index(id_) + 4
        length = 9 - data[at].bit_length()
        # The bit that tells the size's length, and all behind it set.
        data = data[:at] + ((2 << 7 * length) - 1).to_bytes(length) + data[at + length :]
    return data


def test_a_webm_of_unknown_sizes_is_read_to_its_end() -> None:
    data = CLIPS["webm"]
    assert live(data) != data
    assert read_clip_header(live(data), max_pixels=MOST) == read_clip_header(data, max_pixels=MOST)


def test_tables_may_lie_before_the_frames() -> None:
    data = CLIPS["mp4"]
    at = data.index(b"moov") - 4
    head = data.index(b"ftyp") + 4 + struct.unpack_from(">I", data)[0] - 8
    moved = data[:head] + data[at:] + data[head:at]
    assert moved != data
    assert read_clip_header(moved, max_pixels=MOST) == read_clip_header(data, max_pixels=MOST)


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_clip_that_was_cut_off_is_told(kind: str) -> None:
    data = CLIPS[kind]
    for stop in range(0, len(data) - 1, 7):
        try:
            info = read_clip_header(data[:stop], max_pixels=MOST)
        except ImageError:
            pass
        else:
            # Between two clusters or blocks of a WebM nothing shows it.
            assert kind == "webm"
            assert info.frames <= 9


@given(st.data())
def test_whatever_the_bytes_there_is_a_header_or_an_image_error(data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from(list(CLIPS.values()))))
    for _ in range(data.draw(st.integers(1, 6))):
        raw[data.draw(st.integers(0, min(900, len(raw) - 1)))] = data.draw(st.integers(0, 255))
    try:
        info = read_clip_header(bytes(raw), max_pixels=MOST)
    except ImageError:
        pass
    else:
        assert 0 < info.width * info.height <= MOST
        assert info.frames > 0


def box(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I4s", 8 + len(body), name) + body


HOSTILE = {
    b"": "holds no bytes",
    b"hello world": "is no MP4, WebM, Matroska or GIF clip",
    b"#EXTM3U\nhttp://example.org/a.ts": "is no MP4",
    b"\0\0\0\x08ftyp": "without a video track",
    b"\0\0\0\x08ftyp" + box(b"moov", b"\0\0\0\0abcd" * 3): "without a video track",
    b"\0\0\0\x08ftyp" + b"\0\0\0\x03abcd": "cut off, or damaged, at byte 8",
    b"\0\0\0\x08ftyp" + b"\0\0\0\1abcd" + bytes(8): "cut off, or damaged, at byte 8",
    clip("mp4", options={"movflags": "frag_keyframe+empty_moov"}): "lie in fragments",
    b"\0\0\0\x08ftyp"
    + b"".join(struct.pack(">I4s", 8 * n, b"moov") for n in range(20_000, 0, -1)): "without a video t",
    b"\x1a\x45\xdf\xa3\x80": "without a video track",
    b"\x1a\x45\xdf\xa3\x80\x00": "at byte 5",
    b"\x1a\x45\xdf\xa3\x80\xae\x80\xb0\x40\xff" + b"\xff" * 255: "damaged",
    b"GIF89a": "was cut off after 6 bytes",
    b"GIF89a\1\0\1\0\0\0\0;": "has no pixels: 1 x 1, 0 frames",
    b"GIF89a\xff\xff\xff\xff\0\0\0" + CLIPS["one frame"][13:]: "unknown block",
}


@pytest.mark.parametrize(("data", "fault"), HOSTILE.items(), ids=HOSTILE.values())
def test_hostile_bytes_are_image_errors(data: bytes, fault: str) -> None:
    began = time.process_time()
    with pytest.raises(ImageError, match=fault) as caught:
        read_clip_header(data, max_pixels=MOST)
    assert "\n" not in str(caught.value)
    assert time.process_time() - began < 1


def test_more_pixels_than_allowed_are_refused_by_the_header() -> None:
    with pytest.raises(ImageError, match="has 48 x 20 pixels, more than max_pixels=900"):
        read_clip_header(CLIPS["mp4"], max_pixels=900)
