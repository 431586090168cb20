"""Frames of a clip by PyAV, on the host: one thread, no hardware, no network, and only the container that it claims."""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from zephon.errors import ConfigError
from zephon.images.clip_header import ClipInfo
from zephon.images.decode import WHITE, Color
from zephon.images.info import ImageError, one_line
from zephon.images.orient import orient
from zephon.images.rules import Geometry

if TYPE_CHECKING:
    from av import VideoFrame
    from av.container import InputContainer

# FFmpeg's names. It isn't left to guess: a playlist would have it open other files.
DEMUXERS = {"mp4": "mov", "webm": "matroska", "gif": "gif"}


def check_clips_installed(*, place: str) -> None:
    """Raise ConfigError where the library that decodes clips isn't installed."""
    if find_spec("av") is None:
        raise ConfigError(f"{place} needs av (PyAV) to decode clips; pip install av")


def decode_clip(
    data: bytes, info: ClipInfo, geometry: Geometry, *, frames: int, max_pixels: int, background: Color = WHITE
) -> NDArray[np.uint8]:
    """Return so many frames of a clip, evenly spread and upright: uint8 RGB [frames, height, width, 3].

    Of n frames, number k is k * n // frames in the order they are shown. All up to the last of them are decoded,
    one at a time in memory. `info` is what `read_clip_header` said of the same bytes. Equal bytes give equal pixels
    with equal releases of PyAV and torch. Raises ImageError where the bytes behind the header are damaged.
    """
    try:
        with _opened(data, info, max_pixels=max_pixels) as container:
            shown = _shown(container)
        wanted = [number * shown // frames for number in range(frames)]
        with _opened(data, info, max_pixels=max_pixels) as container:
            return _frames(container, info, geometry, wanted, background)
    except (ImageError, MemoryError, Warning):
        # Not the clip's fault: the machine's, or a warning that the user has made an error.
        raise
    except Exception as error:  # a decoder may raise anything on damaged bytes
        raise ImageError(f"can't be decoded as {info.format}: {one_line(error)}") from error


def _opened(data: bytes, info: ClipInfo, *, max_pixels: int) -> InputContainer:
    import av

    # The bound is for frames that are larger than their header says.
    bound = {"max_pixels": str(max_pixels)}
    container = av.open(io.BytesIO(data), "r", format=DEMUXERS[info.format], options=bound, metadata_errors="ignore")
    context = container.streams.video[0].codec_context
    # Workers are many already.
    context.thread_count = 1
    context.options = bound
    return container


def _shown(container: InputContainer) -> int:
    """Return how many frames the demuxer gives that are to be shown, which an edit list may make less than all."""
    stream = container.streams.video[0]
    # VP8 stores frames that are only referred to; a bit of their first byte tells.
    hidden = stream.codec_context.name == "vp8"
    return sum(
        not (packet.is_discard or (hidden and not bytes(packet)[0] & 0x10))
        for packet in container.demux(stream)
        if packet.size
    )


def _frames(
    container: InputContainer, info: ClipInfo, geometry: Geometry, wanted: Sequence[int], background: Color
) -> NDArray[np.uint8]:
    from zephon.images.resize import resize  # torch, for those who decode only

    chosen = set(wanted)
    pixels: dict[int, NDArray[np.uint8]] = {}
    for number, frame in enumerate(container.decode(container.streams.video[0])):
        if frame.is_corrupt:
            raise ImageError(f"has a damaged frame {number}")
        if number in chosen:
            upright = orient(_rgb(frame, background), info.orientation)
            pixels[number] = resize(upright, height=geometry.height, width=geometry.width)
        if number >= wanted[-1]:
            return np.stack([pixels[number] for number in wanted])
    raise ImageError(f"has no frame {wanted[-1]}: it was cut off, or is damaged")


def _rgb(frame: VideoFrame, background: Color) -> NDArray[np.uint8]:
    """Return a frame's pixels as uint8 RGB, what is transparent laid onto `background`."""
    if not any(component.is_alpha for component in frame.format.components):
        return np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
    pixels = np.asarray(frame.to_ndarray(format="rgba"), np.uint16)
    alpha = pixels[:, :, 3:]
    blended = (pixels[:, :, :3] * alpha + np.array(background, np.uint16) * (255 - alpha) + 127) // 255
    return blended.astype(np.uint8)
