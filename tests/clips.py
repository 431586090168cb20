"""Small clips, written by PyAV: frame number k is a level of grey with a bright corner."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

# Encoders that every wheel of PyAV has, by the container's name.
ENCODERS = {
    "mp4": ("mp4", "mpeg4", "yuv420p"),
    "webm": ("webm", "libvpx-vp9", "yuv420p"),
    "gif": ("gif", "gif", "rgb8"),
}


def level(number: int) -> int:
    """Return the grey of a frame."""
    return 40 + 36 * (number % 6)


def frame(number: int, *, width: int = 32, height: int = 24) -> NDArray[np.uint8]:
    """Return a frame, uint8 [height, width, 3]: a level of grey, and white at the left above."""
    pixels = np.full((height, width, 3), level(number), np.uint8)
    pixels[: height // 2, : width // 2] = 255
    return pixels


def clip(
    kind: str, frames: int = 12, *, width: int = 32, height: int = 24, rate: int = 10, encoder: str | None = None,
    turn: int = 0, levels: Sequence[int] | None = None, options: dict[str, str] | None = None,
) -> bytes:  # fmt: skip
    """Return a clip of so many frames, `rate` a second."""
    form, codec, layout = ENCODERS[kind]
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=form, options=options or {}) as container:
        stream: Any = container.add_stream(encoder or codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt = width, height, layout
        if stream.codec_context.name == "libvpx-vp9":
            stream.options = {"deadline": "realtime", "cpu-used": "8"}
        if turn:
            stream.set_display_rotation(turn)
        for number in levels or range(frames):
            picture = av.VideoFrame.from_ndarray(frame(number, width=width, height=height), format="rgb24")
            container.mux(stream.encode(picture))
        container.mux(stream.encode())
    return buffer.getvalue()
