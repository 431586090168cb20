"""A sample's images: found in its fields, measured by their headers, and decoded when their row is planned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from zephon.config import Struct
from zephon.errors import DataError, StoreError, ZephonError
from zephon.formats.sample import Sample
from zephon.images.decode import check_installed, choose_decoder, decode
from zephon.images.header import read_header
from zephon.images.info import DEFAULT_MAX_PIXELS, LARGEST_MAX_PIXELS, ImageError
from zephon.images.rules import Geometry, NativeRule, ResizeRule, check_rule
from zephon.page import Wanted
from zephon.random import SampleRandom
from zephon.stages.fields import BadSampleError, read_field
from zephon.stages.function import load_function
from zephon.tokenizer.engines import one_line

Byte = Annotated[int, Meta(ge=0, le=255)]
Names = str | Annotated[tuple[str, ...], Meta(min_length=1)]


class Augment(Struct, frozen=True, kw_only=True):
    """Your own change of an image's pixels: function(pixels, rng, **options).

    `pixels` is uint8 [height, width, 3], resized; return the same shape. `rng` is a zephon.random.SampleRandom
    keyed by the sample, the image's number in it and the epoch: use no other chance.

    function  module:function, importable by the workers
    version   part of the plan: change it when your code changes what it does
    options   the function's further keyword arguments
    """

    function: str
    version: int | str | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)


class Images(Struct, frozen=True, kw_only=True):
    """How a stage's images become placeholders and pixels.

    placeholder  token that stands in a document for each of an image's tokens
    start        token before an image's placeholders; null: none
    end          token behind them; null: none
    resize       {kind: native | fixed, ...}; all sources with images have the same
    max_pixels   an image whose header says more makes its sample bad
    background   red, green and blue under what is transparent
    check        header: an image that can't be decoded shows when its row is made | pixels: its sample is bad,
                 for the price of decoding every image twice
    augment      your own change of the pixels; null: none
    decoder      cpu | auto | cuda: who decodes JPEGs; auto: a GPU, where one and torchvision are there. No part of
                 the plan, but only the CPU's pixels are the same to the last bit everywhere
    """

    placeholder: str
    start: str | None = None
    end: str | None = None
    resize: ResizeRule = NativeRule()
    max_pixels: Annotated[int, Meta(ge=1, le=LARGEST_MAX_PIXELS)] = DEFAULT_MAX_PIXELS
    background: tuple[Byte, Byte, Byte] = (255, 255, 255)
    check: Literal["header", "pixels"] = "header"
    augment: Augment | None = None
    decoder: Literal["cpu", "auto", "cuda"] = "cpu"

    def plan(self) -> dict[str, Any]:
        """Return the settings that tokens and attachments depend on."""
        planned = msgspec.to_builtins(self)
        del planned["decoder"]
        return dict(planned)


class Picture(NamedTuple):
    """An image as its document needs it: its number in the sample, its geometry, XXH3-64 of its bytes, its frames."""

    number: int
    geometry: Geometry
    digest: int
    frames: int = 1


class Gallery:
    """Measures and decodes images by a stage's settings; may be used by several threads at once."""

    def __init__(self, config: Images, *, place: str) -> None:
        check_installed(place=place)
        check_rule(config.resize, place=f"{place}.resize")
        self.config = config
        self._decode = choose_decoder(config.decoder, place=f"{place}.decoder")
        augment = config.augment
        self._augment: Callable[..., Any] | None = None
        if augment is not None:
            self._augment = load_function(augment.function, place=f"{place}.augment.function")

    def measure(self, data: bytes, number: int) -> Picture:
        """Return what a document needs of an image, from its header. Raises BadSampleError."""
        config = self.config
        try:
            info = read_header(data, max_pixels=config.max_pixels)
            geometry = config.resize.plan(info)
            if config.check == "pixels":
                decode(data, info, geometry, background=config.background)
        except ImageError as error:
            raise BadSampleError(f"image {number} {error}") from None
        return Picture(number, geometry, xxh3_64_intdigest(data))

    def pixels(self, data: bytes, wanted: Wanted, rng: SampleRandom) -> NDArray[np.uint8]:
        """Return an image, uint8 [1, height, width, 3]. Raises BadSampleError where it can't be decoded."""
        config = self.config
        try:
            info = read_header(data, max_pixels=config.max_pixels)
            geometry = config.resize.plan(info)
            if (geometry.height, geometry.width) != (wanted.height, wanted.width):
                raise ImageError(
                    f"has {geometry.width} x {geometry.height} pixels once resized, not the {wanted.width} x "
                    f"{wanted.height} of its document"
                )
            pixels = self._decode(data, info, geometry, background=config.background)
        except ImageError as error:
            raise BadSampleError(f"image {wanted.number} {error}") from None
        if self._augment is not None:
            pixels = self._augmented(pixels, wanted, rng)
        return pixels[None]

    def _augmented(self, pixels: NDArray[np.uint8], wanted: Wanted, rng: SampleRandom) -> NDArray[np.uint8]:
        augment = self.config.augment
        if augment is None or self._augment is None:
            return pixels
        try:
            changed = self._augment(pixels, rng, **augment.options)
        except Exception as error:  # whatever the user's code raises
            place = f"{augment.function} raised {type(error).__name__}: {one_line(error)}"
            if isinstance(error, ZephonError) and not isinstance(error, DataError):
                raise
            if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None):
                raise StoreError(f"{place}; mend the machine and resume") from error
            raise BadSampleError(f"image {wanted.number}: {place}") from None
        if not isinstance(changed, np.ndarray) or changed.dtype != np.uint8 or changed.shape != pixels.shape:
            found = f"{getattr(changed, 'dtype', type(changed).__name__)} of shape {getattr(changed, 'shape', '?')}"
            raise BadSampleError(
                f"image {wanted.number}: {augment.function} returned {found}, not uint8 of shape {pixels.shape}"
            )
        return np.ascontiguousarray(changed)


def read_images(sample: Sample, names: Names, *, place: str, what: str = "an image") -> list[bytes]:
    """Return the images in the first of some fields that holds any: bytes, {bytes: ...}, or a list of these.

    Raises BadSampleError where no such field is there, or it holds anything else; None is no image.
    """
    names = (names,) if isinstance(names, str) else names
    there = [name for name in names if name in sample.fields]
    # A table has a column of each name, in which a row may hold nothing.
    name = next((name for name in there if sample.fields[name] is not None), (*there, names[0])[0])
    value = read_field(sample, name, place=place)
    values: Sequence[Any] = value if isinstance(value, list | tuple) else [value]
    return [image_bytes(item, name=name, what=what) for item in values if item is not None]


def image_bytes(value: Any, *, name: str, what: str = "an image") -> bytes:
    """Return an image's compressed bytes; raises BadSampleError, naming `what` is wanted, where a value has none."""
    if isinstance(value, dict) and "bytes" in value:
        value = value["bytes"]
        if value is None:
            raise BadSampleError(f"{name!r} names {what} file, but doesn't hold its bytes; write them in")
    if not isinstance(value, bytes):
        raise BadSampleError(f"{name!r} is of type {type(value).__name__}, not {what}'s bytes")
    return value
