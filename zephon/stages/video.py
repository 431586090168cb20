"""The `video` stage: clips with a caption, some frames of each as its pixels."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from zephon.config import Positive, Struct
from zephon.errors import ConfigError
from zephon.formats.sample import Column, Sample
from zephon.images.clip_header import ClipInfo, read_clip_header
from zephon.images.clips import check_clips_installed, decode_clip
from zephon.images.info import ImageError
from zephon.images.rules import FixedRule, Geometry, ResizeRule, check_rule
from zephon.page import Wanted
from zephon.random import SampleRandom
from zephon.stages.documents import Documents
from zephon.stages.fields import BadSampleError, read_field, read_text
from zephon.stages.pictures import Images, Names, Picture, read_images
from zephon.stages.segments import METADATA, Long, Segment, SegmentWriter, joining_tokenizer, make_writer
from zephon.stages.stage import SampleRandomOf, Stage
from zephon.tokenizer import LoadedTokenizer

SUFFIXES = ("mp4", "webm", "mkv", "mov", "gif")


class VideoStage(Struct, frozen=True, kw_only=True):
    """One document a sample: its clips, and behind them their caption.

    A clip gets min(frames, fps * its seconds, its own) frames, evenly spread; with resize: native as many of these as
    are a multiple of temporal_patch, or one. Each is resized as an image is. Clip tokens are never predicted, and long
    documents are cut as by image_text, never in a clip.

    images      placeholder token, resize rule and so on; augment, check: pixels and a GPU's decoder aren't for clips
    video       member or column of the clips, or several, of which the first there that isn't null counts: bytes,
                {bytes: ...}, or a list of these
    text        member or column of the caption
    frames      most frames of a clip
    fps         most frames a second; null: no bound
    bos         put tokenizer.bos before each document
    eos         put tokenizer.eos after each document
    errors      strict | replace | ignore: what isn't UTF-8 makes the sample bad, becomes U+FFFD, is left out
    max_tokens  of a document; null: a row's
    long        split | truncate | drop: documents with more; null: pack.long
    """

    images: Images
    video: Names = SUFFIXES
    text: str = "txt"
    frames: Annotated[int, Meta(ge=1, le=4096)] = 16
    fps: Annotated[float, Meta(gt=0, le=1000)] | None = None
    bos: bool = False
    eos: bool = True
    errors: Literal["strict", "replace", "ignore"] = "strict"
    max_tokens: Positive | None = None
    long: Long | None = None

    def fields(self) -> tuple[Column, ...] | None:
        return (self.video, self.text)

    def metadata(self) -> tuple[str, ...]:
        return METADATA

    def plan(self) -> dict[str, Any]:
        return {"kind": "video", **msgspec.to_builtins(self), "images": self.images.plan()}

    def needs(self) -> tuple[str, ...]:
        eos = self.eos or self.images.end is None
        return ("path", *("eos",) * eos, *("bos",) * self.bos)

    def resize_rule(self) -> ResizeRule:
        return self.images.resize

    def fitted(self, *, capacity: int, long: Long) -> VideoStage:
        return msgspec.structs.replace(self, max_tokens=self.max_tokens or capacity, long=self.long or long)

    def build(self, tokenizer: LoadedTokenizer | None, *, place: str) -> Stage:
        check_clips_installed(place=place)
        check_rule(self.images.resize, place=f"{place}.images.resize")
        for name, plain in (("augment", None), ("check", "header"), ("decoder", "cpu")):
            if getattr(self.images, name) != plain:
                raise ConfigError(f"{place}.images.{name} is for images, not for clips; leave it out")
        tokenizer = joining_tokenizer(tokenizer, place=place)
        return _Video(self, make_writer(self, tokenizer, place=place), place=place)


class _Video:
    def __init__(self, config: VideoStage, writer: SegmentWriter, *, place: str) -> None:
        self._config = config
        self._writer = writer
        self._place = place

    def documents(self, samples: Sequence[Sample], random: SampleRandomOf) -> Documents:
        return self._writer.documents(samples, self._segments)

    def materialise(self, sample: Sample, wanted: Wanted, rng: SampleRandom) -> NDArray[np.uint8]:
        data = self._clips(sample)[wanted.number]
        look = self._config.images
        try:
            info = read_clip_header(data, max_pixels=look.max_pixels)
            geometry = look.resize.plan(info)
            return decode_clip(
                data,
                info,
                geometry,
                frames=wanted.frames,
                max_pixels=look.max_pixels,
                background=look.background,
            )
        except ImageError as error:
            raise BadSampleError(f"clip {wanted.number} {error}") from None

    def _clips(self, sample: Sample) -> list[bytes]:
        return read_images(sample, self._config.video, place=f"{self._place}.video", what="a clip")

    def _segments(self, sample: Sample) -> list[Segment]:
        config = self._config
        if sample.error is not None:
            raise BadSampleError(sample.error)
        clips = [self._measure(data, number) for number, data in enumerate(self._clips(sample))]
        text = read_text(
            read_field(sample, config.text, place=f"{self._place}.text"), name=config.text, errors=config.errors
        )
        return [*clips, (text, True)] if text else [*clips]

    def _measure(self, data: bytes, number: int) -> Picture:
        look = self._config.images
        try:
            info = read_clip_header(data, max_pixels=look.max_pixels)
            frames = num_frames(info, most=self._config.frames, fps=self._config.fps)
            geometry, frames = clip_geometry(look.resize, info, frames)
        except ImageError as error:
            raise BadSampleError(f"clip {number} {error}") from None
        return Picture(number, geometry, xxh3_64_intdigest(data), frames)


def num_frames(info: ClipInfo, *, most: int, fps: float | None) -> int:
    """Return how many frames of a clip are wanted, at least 1. Raises ImageError where `fps` lacks its length."""
    wanted = min(most, info.frames)
    if fps is None:
        return wanted
    if info.seconds is None:
        raise ImageError("doesn't say how long it plays, which fps needs; write it anew, or set frames alone")
    # As a decimal, in integers: no machine rounds it.
    return max(1, min(wanted, int(info.seconds * Fraction(str(fps)))))


def clip_geometry(rule: ResizeRule, info: ClipInfo, frames: int) -> tuple[Geometry, int]:
    """Return the geometry of a clip of at most so many frames, and how many it has."""
    frame = rule.plan(info)
    depth = 1 if isinstance(rule, FixedRule) else rule.temporal_patch
    # Frames that fill no patch are left out; a single one fills it, as an image does.
    frames = frames - frames % depth or 1
    times = max(1, frames // depth)
    return frame._replace(grid_t=times, patches=frame.patches * times, tokens=frame.tokens * times), frames
