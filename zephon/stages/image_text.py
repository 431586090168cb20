"""The `image_text` stage: images with a caption, or with a conversation about them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from zephon.config import Positive, Struct
from zephon.formats.sample import Column, Sample
from zephon.images.rules import ResizeRule
from zephon.page import Wanted
from zephon.random import SampleRandom
from zephon.stages.chat import ChatStage, Part, read_json
from zephon.stages.documents import Documents
from zephon.stages.fields import BadSampleError, read_field, read_text
from zephon.stages.pictures import Gallery, Images, Names, Picture, read_images
from zephon.stages.segments import METADATA, Long, Segment, SegmentWriter, joining_tokenizer, make_writer
from zephon.stages.stage import SampleRandomOf, Stage
from zephon.tokenizer import LoadedTokenizer

SUFFIXES = ("jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff")
Parts = Callable[[Sample], list[Part]]


class ImageTextStage(Struct, frozen=True, kw_only=True):
    """One document a sample: its images and their caption, or its conversation with images in it.

    Image tokens are never predicted. A document longer than max_tokens becomes several, cut between texts and
    images and never in one; pieces in which nothing is predicted are left out, and so are samples without text.

    images      placeholder token, resize rule and so on
    image       member or column of the images, or several, of which the first there that isn't null counts: bytes,
                {bytes: ...}, or a list of these
    text        member or column of the caption
    order       image_first | text_first
    chat        {field, template, ...} as in a chat stage: a conversation in place of a caption; null: a caption
    marker      text in a conversation that stands for the next image
    parts       join: contents that are lists of {type: text | image} become texts with markers | keep: the template
                writes them
    bos         put tokenizer.bos before each document
    eos         put tokenizer.eos after each document
    errors      strict | replace | ignore: what isn't UTF-8 makes the sample bad, becomes U+FFFD, is left out
    max_tokens  of a document; null: a row's
    long        split | truncate | drop: documents with more; null: pack.long
    """

    images: Images
    image: Names = SUFFIXES
    text: str = "txt"
    order: Literal["image_first", "text_first"] = "image_first"
    chat: ChatStage | None = None
    marker: str = "<image>"
    parts: Literal["join", "keep"] = "join"
    bos: bool = False
    eos: bool = True
    errors: Literal["strict", "replace", "ignore"] = "strict"
    max_tokens: Positive | None = None
    long: Long | None = None

    def fields(self) -> tuple[Column, ...] | None:
        texts: tuple[Column, ...] = (self.text,)
        if self.chat is not None:
            texts = self.chat.fields() or ()
        return (self.image, *texts)

    def metadata(self) -> tuple[str, ...]:
        return METADATA

    def plan(self) -> dict[str, Any]:
        chat = None if self.chat is None else self.chat.plan()
        return {"kind": "image_text", **msgspec.to_builtins(self), "images": self.images.plan(), "chat": chat}

    def needs(self) -> tuple[str, ...]:
        eos = self.eos or self.images.end is None
        return ("path", *("eos",) * eos, *("bos",) * self.bos)

    def resize_rule(self) -> ResizeRule:
        return self.images.resize

    def fitted(self, *, capacity: int, long: Long) -> ImageTextStage:
        return msgspec.structs.replace(self, max_tokens=self.max_tokens or capacity, long=self.long or long)

    def build(self, tokenizer: LoadedTokenizer | None, *, place: str) -> Stage:
        tokenizer = joining_tokenizer(tokenizer, place=place)
        writer = make_writer(self, tokenizer, place=place)
        chat = None if self.chat is None else self.chat.writer(tokenizer, place=f"{place}.chat")
        return _ImageText(self, Gallery(self.images, place=f"{place}.images"), writer, chat, place=place)


class _ImageText:
    def __init__(
        self, config: ImageTextStage, gallery: Gallery, writer: SegmentWriter, chat: Parts | None, *, place: str
    ) -> None:
        self._config = config
        self._gallery = gallery
        self._writer = writer
        self._chat = chat
        self._place = place

    def documents(self, samples: Sequence[Sample], random: SampleRandomOf) -> Documents:
        return self._writer.documents(samples, self._segments)

    def materialise(self, sample: Sample, wanted: Wanted, rng: SampleRandom) -> NDArray[np.uint8]:
        return self._gallery.pixels(self._images(sample)[wanted.number], wanted, rng)

    def _images(self, sample: Sample) -> list[bytes]:
        return read_images(sample, self._config.image, place=f"{self._place}.image")

    def _segments(self, sample: Sample) -> list[Segment]:
        config = self._config
        if sample.error is not None:
            raise BadSampleError(sample.error)
        pictures = [self._gallery.measure(data, number) for number, data in enumerate(self._images(sample))]
        if self._chat is not None and config.chat is not None:
            if config.parts == "join":
                sample = join_contents(sample, config.chat, config.marker, place=f"{self._place}.chat.field")
            return place_pictures(self._chat(sample), pictures, config.marker)
        text = read_text(
            read_field(sample, config.text, place=f"{self._place}.text"), name=config.text, errors=config.errors
        )
        caption: list[Segment] = [(text, True)] if text else []
        return [*pictures, *caption] if config.order == "image_first" else [*caption, *pictures]


def join_contents(sample: Sample, chat: ChatStage, marker: str, *, place: str) -> Sample:
    """Return the sample with message contents that are lists of parts as texts, in which `marker` is each image."""
    value = read_json(read_field(sample, chat.field, place=place), chat.field)
    messages = value["messages"] if isinstance(value, dict) and "messages" in value else value
    if not isinstance(messages, list):
        return sample
    joined = []
    for number, message in enumerate(messages):
        content = message.get(chat.content) if isinstance(message, dict) else None
        if isinstance(content, list):
            texts = [_part_text(part, marker, f"message {number} of {chat.field!r}") for part in content]
            message = {**message, chat.content: "".join(texts)}
        joined.append(message)
    return Sample(sample.key, {**sample.fields, chat.field: joined})


def _part_text(part: Any, marker: str, where: str) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict):
        if isinstance(part.get("text"), str):
            text: str = part["text"]
            return text
        if part.get("type") in ("image", "image_url") or "image" in part:
            return marker
    raise BadSampleError(f"{where} has a part that is neither text nor image: {str(part)[:80]!r}")


def place_pictures(parts: Sequence[Part], pictures: Sequence[Picture], marker: str) -> list[Segment]:
    """Return the parts with the next picture in place of each marker. Raises BadSampleError where numbers differ."""
    segments: list[Segment] = []
    rest = iter(pictures)
    found = sum(text.count(marker) for text, _ in parts)
    if found != len(pictures):
        raise BadSampleError(
            f"its conversation has {found} markers {marker!r} for {len(pictures)} images; correct it, or set the "
            "stage's marker"
        )
    for text, learned in parts:
        for number, piece in enumerate(text.split(marker)):
            if number:
                segments.append(next(rest))
            if piece:
                segments.append((piece, learned))
    return segments
