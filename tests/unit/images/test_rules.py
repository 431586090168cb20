"""Resize rules: integers alone, Qwen2-VL's sizes, every bound kept."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from zephon.errors import ConfigError
from zephon.images.info import ImageError, ImageInfo
from zephon.images.rules import LARGEST_VALUES, FixedRule, Geometry, NativeRule, check_rule, least_tokens, read_rule

SIDES = st.integers(1, 12_000)


def info(height: int, width: int) -> ImageInfo:
    return ImageInfo(format="png", width=width, height=height)


def test_fixed_gives_every_image_siglip_s_grid() -> None:
    geometry = FixedRule(size=384).plan(info(10, 3000))
    assert geometry == Geometry(384, 384, 1, 27, 27, 729, 729)
    assert FixedRule(size=448, merge=2).plan(info(1, 1)).tokens == 256


@settings(max_examples=500, deadline=None)
@given(SIDES, SIDES, st.sampled_from([(14, 2), (16, 2), (14, 1)]), st.sampled_from([3136, 200_704, 1_003_520]))
def test_native_gives_qwen_s_sizes(height: int, width: int, cells: tuple[int, int], most: int) -> None:
    patch, merge = cells
    rule = NativeRule(patch=patch, merge=merge, min_pixels=3136, max_pixels=most)
    if max(height, width) > 200 * min(height, width):
        with pytest.raises(ImageError, match="more than 200 times"):
            rule.plan(info(height, width))
        return
    geometry = rule.plan(info(height, width))
    expected = smart_resize(height, width, factor=patch * merge, min_pixels=3136, max_pixels=most)
    if not exact_root(height, width, patch * merge, most):
        assert (geometry.height, geometry.width) == expected
    assert geometry.height % (patch * merge) == geometry.width % (patch * merge) == 0
    assert geometry.patches == geometry.grid_h * geometry.grid_w == geometry.tokens * merge**2
    assert (geometry.grid_h * patch, geometry.grid_w * patch) == (geometry.height, geometry.width)


def exact_root(height: int, width: int, factor: int, most: int) -> bool:
    """Whether a side's multiple is a whole number before rounding, where Qwen2-VL's floats may err by one."""

    def whole(numerator: int, denominator: int) -> bool:
        quotient, rest = divmod(numerator, denominator)
        return not rest and math.isqrt(quotient) ** 2 == quotient

    sides = ((height, width), (width, height))
    return any(whole(a * bound, factor**2 * b) for a, b in sides for bound in (3136, most))


@given(SIDES, SIDES)
def test_native_keeps_its_bounds(height: int, width: int) -> None:
    if max(height, width) > 20 * min(height, width):
        return
    rule = NativeRule()
    geometry = rule.plan(info(height, width))
    assert rule.min_pixels <= geometry.height * geometry.width <= rule.max_pixels


def test_a_whole_root_is_met_exactly() -> None:
    # 280 * 280 * 25 / 4 pixels, reduced to 280 * 280: k is exactly 10, which floats may take for 9.99….
    rule = NativeRule(max_pixels=280 * 280)
    assert rule.plan(info(700, 700))[:2] == (280, 280)
    assert NativeRule(min_pixels=280 * 280).plan(info(56, 56))[:2] == (280, 280)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"kind": "fixed", "size": 8}, r"sources\.a\.stage\.resize: a token of 14 x 14 pixels doesn't fit size=8"),
        ({"kind": "fixed", "size": 384, "merge": 2}, "27 x 27 patches can't be merged 2 x 2"),
        ({"kind": "fixed", "std": [0.5, 0, 0.5]}, r"std=\[0.5, 0.0, 0.5\] has to be above 0"),
        ({"kind": "fixed", "std": [0.5, 1e-300, 0.5]}, "has to be above 0 in each channel, from 1e-06 to"),
        ({"kind": "native", "mean": [1e300, 0, 0]}, r"mean=\[1e\+300, 0.0, 0.0\] within 1000000.0 of 0; correct it"),
        ({"kind": "native", "min_pixels": 5000, "max_pixels": 4000}, "max_pixels=4000 is less than min_pixels=5000"),
        ({"kind": "native", "max_pixels": 500, "min_pixels": 1}, "784 pixels; enlarge it"),
        (
            {"kind": "native", "patch": 10**9},
            r"an image may take .* values a channel .*patch=1000000000, .*; lower these",
        ),
        ({"kind": "native", "temporal_patch": 10**30}, r"more than 134,217,728; lower these"),
        ({"kind": "native", "max_pixels": 10**12}, r"max_pixels=1000000000000, .*; lower these"),
        ({"kind": "native", "min_pixels": 10**12}, "max_pixels=1003520 is less than min_pixels=1000000000000"),
        ({"kind": "native", "min_pixels": 1 << 27, "max_pixels": 1 << 27}, "may take 268,435,456 values"),
        ({"kind": "fixed", "size": 10**9}, r"<= 8192 - at `\$\.size`"),
        ({"kind": "fixed", "patch": 10**9}, "doesn't fit size=384"),
        ({"kind": "native", "sise": 4}, "unknown field `sise`"),
        ({"kind": "cover"}, "'cover'"),
        ({"size": 3}, "missing required field `kind`"),
    ],
)
def test_rules_that_can_t_work_are_config_errors(rule: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_rule(rule, place="sources.a.stage.resize")


def test_the_default_rules_work() -> None:
    check_rule(FixedRule(), place="resize")
    check_rule(NativeRule(), place="resize")
    assert read_rule({"kind": "native", "mean": [0, 0, 0]}, place="resize") == NativeRule(mean=(0, 0, 0))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_no_image_takes_less_than_the_least_tokens_or_more_than_the_most_values(data: st.DataObject) -> None:
    patch, merge = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 4))
    side = (patch * merge) ** 2
    most = data.draw(st.integers(side, 40 * side))
    rule = NativeRule(patch=patch, merge=merge, max_pixels=most, min_pixels=data.draw(st.integers(1, most)))
    check_rule(rule, place="resize")
    image = info(data.draw(SIDES), data.draw(SIDES))
    if max(image.height, image.width) > 200 * min(image.height, image.width):
        return
    geometry = rule.plan(image)
    assert least_tokens(rule) <= geometry.tokens
    # Sides that are rounded up to a token at least double a bound at most.
    assert geometry.height * geometry.width <= 2.1 * max(most, 200 * side)
    fixed = FixedRule(size=8 * patch, patch=patch)
    assert least_tokens(fixed) == fixed.plan(image).tokens
    assert fixed.size**2 <= LARGEST_VALUES
