"""Resize rules: the size, patches and tokens that an image gets, from its header alone and in integers alone."""

from __future__ import annotations

from math import isqrt
from typing import Annotated, NamedTuple, Protocol

import msgspec
from msgspec import Meta

from zephon.config import Positive, Struct
from zephon.errors import ConfigError
from zephon.images.info import ImageError

Channels = tuple[float, float, float]
# Beyond it an image is a line, which no patch shows: the bound that Qwen2-VL's processor has too.
MAX_ASPECT = 200
# Of an image's values in each channel, repeated frames included: 1.5 GiB of float32 in all.
LARGEST_VALUES = 1 << 27
# Levels are in [0, 1]; far beyond that float32 would overflow.
FAR = 1e6


class Size(Protocol):
    """What a rule needs to know: an image's, or a clip's, upright width and height in pixels."""

    @property
    def width(self) -> int: ...
    @property
    def height(self) -> int: ...


class Geometry(NamedTuple):
    """What an image becomes.

    height   pixels after the resize
    width    pixels after the resize
    grid_t   patches over time: 1, and more of a clip
    grid_h   patches from top to bottom
    grid_w   patches from left to right
    patches  grid_t * grid_h * grid_w
    tokens   placeholders that stand for the image in its document
    """

    height: int
    width: int
    grid_t: int
    grid_h: int
    grid_w: int
    patches: int
    tokens: int


class FixedRule(Struct, frozen=True, kw_only=True, tag_field="kind", tag="fixed"):
    """Every image becomes a square, as SigLIP and CLIP want it: stretched, not cut.

    size   pixels a side
    patch  pixels a side of a patch; what doesn't fill one at the right and bottom counts as none
    merge  patches a side that make one token
    mean   of red, green and blue in [0, 1], subtracted
    std    by which the difference is divided
    """

    size: Annotated[int, Meta(ge=1, le=8192)] = 384
    patch: Positive = 14
    merge: Positive = 1
    mean: Channels = (0.5, 0.5, 0.5)
    std: Channels = (0.5, 0.5, 0.5)

    def plan(self, info: Size) -> Geometry:
        """Return the image's geometry, the same for all images."""
        grid = self.size // self.patch
        return Geometry(self.size, self.size, 1, grid, grid, grid * grid, (grid // self.merge) ** 2)


class NativeRule(Struct, frozen=True, kw_only=True, tag_field="kind", tag="native"):
    """Images keep their proportions, in sides that are multiples of patch * merge, as Qwen2-VL and NaViT want it.

    With f = patch * merge, the sides h and w become the nearest multiples of f (of two, the one with the even
    quotient; it may be 0). Where their product is over max_pixels, h becomes f times the largest integer k with
    k^2 * f^2 * w <= h * max_pixels, at least 1, and w likewise; where it is under min_pixels, f times the
    smallest k with k^2 * f^2 * w >= h * min_pixels. That is Qwen2-VL's rule, in integers, which no machine rounds.

    patch           pixels a side of a patch
    merge           patches a side that make one token
    temporal_patch  frames a patch holds; an image is repeated so many times
    min_pixels      smaller images are enlarged
    max_pixels      larger images are made smaller
    mean            of red, green and blue in [0, 1], subtracted
    std             by which the difference is divided
    """

    patch: Positive = 14
    merge: Positive = 2
    temporal_patch: Positive = 2
    min_pixels: Positive = 56 * 56
    max_pixels: Positive = 28 * 28 * 1280
    mean: Channels = (0.48145466, 0.4578275, 0.40821073)
    std: Channels = (0.26862954, 0.26130258, 0.27577711)

    def plan(self, info: Size) -> Geometry:
        """Return the image's geometry. Raises ImageError where a side is more than 200 times the other."""
        h, w = info.height, info.width
        if max(h, w) > MAX_ASPECT * min(h, w):
            raise ImageError(f"has {w:,} x {h:,} pixels: one side is more than {MAX_ASPECT} times the other")
        f = self.patch * self.merge
        height, width = (_nearest(side, f) * f for side in (h, w))
        if height * width > self.max_pixels:
            height, width = (max(1, isqrt(a * self.max_pixels // (f * f * b))) * f for a, b in ((h, w), (w, h)))
        elif height * width < self.min_pixels:
            height, width = (_root_up(a * self.min_pixels, f * f * b) * f for a, b in ((h, w), (w, h)))
        rows, columns = height // self.patch, width // self.patch
        patches = rows * columns
        return Geometry(height, width, 1, rows, columns, patches, patches // self.merge**2)


ResizeRule = FixedRule | NativeRule


def check_rule(rule: ResizeRule, *, place: str) -> None:
    """Raise ConfigError, naming the field, where a rule's fields don't go together."""
    if not all(1 / FAR <= value <= FAR for value in rule.std) or not all(abs(value) <= FAR for value in rule.mean):
        raise ConfigError(
            f"{place}.std={list(rule.std)} has to be above 0 in each channel, from {1 / FAR} to {FAR}, and "
            f"mean={list(rule.mean)} within {FAR} of 0; correct it"
        )
    if isinstance(rule, FixedRule):
        side = rule.patch * rule.merge
        if side > rule.size:
            raise ConfigError(f"{place}: a token of {side} x {side} pixels doesn't fit size={rule.size}; enlarge size")
        if rule.size // rule.patch % rule.merge:
            grid = rule.size // rule.patch
            raise ConfigError(
                f"{place}: {grid} x {grid} patches can't be merged {rule.merge} x {rule.merge}; change size or merge"
            )
        return
    side = (rule.patch * rule.merge) ** 2
    # The longest image has a token's width at least, whatever max_pixels says; rounding may double this, no more.
    most = rule.temporal_patch * max(rule.max_pixels, MAX_ASPECT * side)
    if most > LARGEST_VALUES:
        raise ConfigError(
            f"{place}: an image may take {most:,} values a channel (temporal_patch={rule.temporal_patch}, max_pixels="
            f"{rule.max_pixels}, patch={rule.patch}, merge={rule.merge}), more than {LARGEST_VALUES:,}; lower these"
        )
    if rule.max_pixels < max(side, rule.min_pixels):
        raise ConfigError(
            f"{place}.max_pixels={rule.max_pixels} is less than min_pixels={rule.min_pixels} or than a token's "
            f"{side} pixels; enlarge it"
        )


def least_tokens(rule: ResizeRule) -> int:
    """Return a number of tokens that no image takes less than: of `fixed` what each takes."""
    if isinstance(rule, FixedRule):
        return (rule.size // rule.patch // rule.merge) ** 2
    # Sides are rounded down to a token at least, and so to more than half, where max_pixels is met.
    return rule.min_pixels // (2 * rule.patch * rule.merge) ** 2


def read_rule(value: object, *, place: str) -> ResizeRule:
    """Return the checked rule that a mapping {kind: fixed | native, ...} says. Raises ConfigError."""
    try:
        rule: ResizeRule = msgspec.convert(value, ResizeRule)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{place}: {error}") from None
    check_rule(rule, place=place)
    return rule


def _nearest(side: int, factor: int) -> int:
    """Return side / factor rounded to the nearest integer, halves to the even one."""
    quotient, rest = divmod(side, factor)
    return quotient + (2 * rest + (quotient & 1) > factor)


def _root_up(numerator: int, denominator: int) -> int:
    """Return the least integer whose square is at least numerator / denominator, both above 0."""
    return isqrt(-(-numerator // denominator) - 1) + 1
