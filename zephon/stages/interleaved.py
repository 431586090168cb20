"""The `interleaved` stage: documents of many texts and images in turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from zephon.config import Positive, Struct
from zephon.errors import ConfigError
from zephon.formats.sample import Sample
from zephon.images.rules import ResizeRule
from zephon.page import Wanted
from zephon.random import SampleRandom
from zephon.stages.chat import read_json
from zephon.stages.documents import Documents
from zephon.stages.fields import BadSampleError, half_pair, read_field
from zephon.stages.pictures import Gallery, Images, image_bytes
from zephon.stages.segments import METADATA, Long, Segment, SegmentWriter, joining_tokenizer, make_writer
from zephon.stages.stage import SampleRandomOf, Stage
from zephon.tokenizer import LoadedTokenizer

# A text, or an image's bytes.
Element = str | bytes


class InterleavedStage(Struct, frozen=True, kw_only=True):
    """One document a sample: texts and images in their order, all text predicted.

    Either `parts` is a list (or JSON of one) of texts, {text: ...} and {image: ...}, an image being named by its
    member or column, or numbered in the list `images_field`; or `texts` and `images_field` are lists of one length, of
    which one has null where the other has something (OBELICS). Long documents are cut as by image_text.

    images        placeholder token, resize rule and so on
    parts         member or column of the parts; null: texts and images_field
    texts         column of the texts
    images_field  member or column of the images: a list of bytes or of {bytes: ...}
    bos           put tokenizer.bos before each document
    eos           put tokenizer.eos after each document
    max_tokens    of a document; null: a row's
    long          split | truncate | drop: documents with more; null: pack.long
    """

    images: Images
    parts: str | None = None
    texts: str | None = None
    images_field: str | None = None
    bos: bool = False
    eos: bool = True
    max_tokens: Positive | None = None
    long: Long | None = None

    def fields(self) -> tuple[str, ...] | None:
        if self.parts is not None and self.images_field is None:
            # The parts name members, which only the sample knows.
            return None
        return tuple(name for name in (self.parts, self.texts, self.images_field) if name is not None)

    def metadata(self) -> tuple[str, ...]:
        return METADATA

    def plan(self) -> dict[str, Any]:
        return {"kind": "interleaved", **msgspec.to_builtins(self), "images": self.images.plan()}

    def needs(self) -> tuple[str, ...]:
        eos = self.eos or self.images.end is None
        return ("path", *("eos",) * eos, *("bos",) * self.bos)

    def resize_rule(self) -> ResizeRule:
        return self.images.resize

    def fitted(self, *, capacity: int, long: Long) -> InterleavedStage:
        return msgspec.structs.replace(self, max_tokens=self.max_tokens or capacity, long=self.long or long)

    def build(self, tokenizer: LoadedTokenizer | None, *, place: str) -> Stage:
        tokenizer = joining_tokenizer(tokenizer, place=place)
        if (self.parts is None) == (self.texts is None) or (self.texts is not None and self.images_field is None):
            raise ConfigError(f"{place}: set either parts, or texts and images_field")
        writer = make_writer(self, tokenizer, place=place)
        return _Interleaved(self, Gallery(self.images, place=f"{place}.images"), writer, place=place)


class _Interleaved:
    def __init__(self, config: InterleavedStage, gallery: Gallery, writer: SegmentWriter, *, place: str) -> None:
        self._config = config
        self._gallery = gallery
        self._writer = writer
        self._place = place

    def documents(self, samples: Sequence[Sample], random: SampleRandomOf) -> Documents:
        return self._writer.documents(samples, self._segments)

    def materialise(self, sample: Sample, wanted: Wanted, rng: SampleRandom) -> NDArray[np.uint8]:
        images = [element for element in self._elements(sample) if isinstance(element, bytes)]
        return self._gallery.pixels(images[wanted.number], wanted, rng)

    def _segments(self, sample: Sample) -> list[Segment]:
        segments: list[Segment] = []
        number = 0
        for element in self._elements(sample):
            if isinstance(element, bytes):
                segments.append(self._gallery.measure(element, number))
                number += 1
            elif half_pair(element) is not None:
                raise BadSampleError("a text has half a surrogate pair, which is no character; correct it")
            elif element:
                segments.append((element, True))
        return segments

    def _elements(self, sample: Sample) -> list[Element]:
        config = self._config
        if config.parts is not None:
            return self._listed(sample, config.parts, config.images_field)
        texts = read_field(sample, str(config.texts), place=f"{self._place}.texts")
        images = read_field(sample, str(config.images_field), place=f"{self._place}.images_field")
        if not isinstance(texts, list) or not isinstance(images, list) or len(texts) != len(images):
            raise BadSampleError(f"{config.texts!r} and {config.images_field!r} aren't lists of one length")
        elements: list[Element] = []
        for number, (text, image) in enumerate(zip(texts, images, strict=True)):
            if (text is None) == (image is None):
                raise BadSampleError(f"element {number} is neither a text nor an image alone")
            elements.append(_text(text, number) if image is None else image_bytes(image, name=str(config.images_field)))
        return elements

    def _listed(self, sample: Sample, name: str, images_field: str | None) -> list[Element]:
        parts = read_json(read_field(sample, name, place=f"{self._place}.parts"), name)
        if not isinstance(parts, list):
            raise BadSampleError(f"{name!r} is of type {type(parts).__name__}, not a list of parts")
        images: Any = None
        if images_field is not None:
            images = read_field(sample, images_field, place=f"{self._place}.images_field")
        elements: list[Element] = []
        for number, part in enumerate(parts):
            if isinstance(part, str):
                elements.append(part)
            elif isinstance(part, dict) and part.get("image") is not None:
                elements.append(_image(sample, part["image"], images, number))
            elif isinstance(part, dict) and part.get("text") is not None:
                elements.append(_text(part["text"], number))
            else:
                raise BadSampleError(f"part {number} of {name!r} has neither text nor image")
        return elements


def _text(value: Any, number: int) -> str:
    if not isinstance(value, str):
        raise BadSampleError(f"element {number} is of type {type(value).__name__}, not text")
    return value


def _image(sample: Sample, name: Any, images: Any, number: int) -> bytes:
    """Return the bytes of the image that a part names, or numbers in a list."""
    if isinstance(name, int) and isinstance(images, list):
        if not 0 <= name < len(images):
            raise BadSampleError(f"part {number} is image {name}, but there are {len(images)}")
        return image_bytes(images[name], name=f"image {name}")
    if isinstance(name, str) and images is None:
        if name not in sample.fields:
            has = ", ".join(map(repr, sample.fields))
            raise BadSampleError(f"part {number} names the image {name!r}, which isn't there (has: {has})")
        return image_bytes(sample.fields[name], name=name)
    raise BadSampleError(
        f"part {number} has the image {str(name)[:80]!r}; give a member's name, or a number with images_field"
    )
