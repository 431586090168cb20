"""Pixel values: Qwen2-VL's processor's, SigLIP's normalisation, the same on every device."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from zephon.collate.images import PixelBuilder, device_values, grid_thw
from zephon.images.info import ImageInfo
from zephon.images.resize import resize
from zephon.images.rules import FixedRule, NativeRule, ResizeRule

CPU = torch.device("cpu")
SIZES = [(120, 200), (56, 56), (301, 77), (28, 5000 // 28)]


def pictures(sizes: list[tuple[int, int]]) -> list[NDArray[np.uint8]]:
    rng = np.random.default_rng(5)
    return [rng.integers(0, 256, (height, width, 3), dtype=np.uint8) for height, width in sizes]


def resized(images: list[NDArray[np.uint8]], rule: ResizeRule) -> tuple[list[torch.Tensor], NDArray[np.int64]]:
    plans = [rule.plan(ImageInfo(format="png", width=image.shape[1], height=image.shape[0])) for image in images]
    pixels = [resize(image, height=plan.height, width=plan.width) for image, plan in zip(images, plans, strict=True)]
    return [torch.from_numpy(image)[None] for image in pixels], grid_thw(plans)


@pytest.mark.parametrize(("patch", "merge", "frames"), [(14, 2, 2), (16, 2, 2), (14, 1, 1), (8, 3, 3)])
def test_native_pixels_are_those_of_qwen_s_processor(patch: int, merge: int, frames: int) -> None:
    rule = NativeRule(patch=patch, merge=merge, temporal_patch=frames, min_pixels=3136, max_pixels=200_000)
    processor = Qwen2VLImageProcessorPil(
        patch_size=patch,
        merge_size=merge,
        temporal_patch_size=frames,
        size={"shortest_edge": rule.min_pixels, "longest_edge": rule.max_pixels},
    )
    images = pictures(SIZES)
    expected = processor(images, return_tensors="pt")
    tensors, grids = resized(images, rule)
    values = PixelBuilder(rule, device=CPU).build(tensors)
    assert grids.tolist() == expected["image_grid_thw"].tolist()
    assert values.shape == expected["pixel_values"].shape
    # Two levels of rounding in the resize are 0.03 here; anything out of order would differ by whole units.
    difference = (values - expected["pixel_values"]).abs()
    assert difference.max() < 0.031
    assert difference.mean() < 1e-4


def test_fixed_pixels_are_those_of_siglip_s_processor() -> None:
    rule = FixedRule(size=224)
    images = pictures(SIZES)
    expected = SiglipImageProcessorPil(size={"height": 224, "width": 224})(images, return_tensors="pt")
    values = PixelBuilder(rule, device=CPU).build(resized(images, rule)[0])
    difference = (values - expected["pixel_values"]).abs()
    assert values.shape == (len(images), 3, 224, 224)
    # Two levels of rounding in the resize.
    assert difference.max() < 0.016
    assert difference.mean() < 1e-4


@pytest.mark.parametrize("rule", [FixedRule(size=28), NativeRule()], ids=["fixed", "native"])
def test_values_are_exact_to_a_millionth(rule: ResizeRule) -> None:
    side = 28
    levels = torch.arange(side * side, dtype=torch.int64).remainder(256).view(side, side, 1).expand(-1, -1, 3)
    values = PixelBuilder(rule, device=CPU).build([levels.to(torch.uint8)[None]])
    exact = (levels.double() / 255 - torch.tensor(rule.mean).double()) / torch.tensor(rule.std).double()
    planes = values[0] if isinstance(rule, FixedRule) else values.view(4, 3, 2, 196)[:, :, 0].permute(1, 0, 2)
    # Whatever their order, a channel's values are those of its levels.
    found, wanted = planes.reshape(3, -1).double().sort().values, exact.view(-1, 3).T.sort().values
    assert (found - wanted).abs().max() < 2e-6


def test_frames_of_a_video_are_patches_over_time() -> None:
    rule = NativeRule(min_pixels=1)
    frames = torch.from_numpy(np.random.default_rng(3).integers(0, 256, (6, 56, 84, 3), dtype=np.uint8))
    values = PixelBuilder(rule, device=CPU).build([frames]).view(3, 24, 3, 2, 14, 14)
    doubled = [PixelBuilder(rule, device=CPU).build([frame[None]]).view(24, 3, 2, 14, 14) for frame in frames]
    for time in range(3):
        assert torch.equal(values[time, :, :, 0], doubled[2 * time][:, :, 0])
        assert torch.equal(values[time, :, :, 1], doubled[2 * time + 1][:, :, 0])
    assert PixelBuilder(FixedRule(size=56), device=CPU).build([frames[:, :, :56], frames[:1, :, :56]]).shape == (
        7,
        3,
        56,
        56,
    )


@pytest.mark.parametrize(
    "rule",
    [FixedRule(size=224), NativeRule(), NativeRule(temporal_patch=1, merge=1), NativeRule(patch=8, merge=3)],
    ids=["fixed", "native", "plain", "merged"],
)
def test_numpy_and_torch_agree_to_the_last_bit(rule: ResizeRule) -> None:
    tensors, _ = resized(pictures(SIZES), rule)
    if isinstance(rule, NativeRule):
        tensors.append(tensors[0].expand(2 * rule.temporal_patch, -1, -1, -1).contiguous())
    scale = torch.tensor([1 / (255 * std) for std in rule.std]).view(3, 1, 1)
    shift = torch.tensor([-mean / std for mean, std in zip(rule.mean, rule.std, strict=True)]).view(3, 1, 1)
    assert torch.equal(PixelBuilder(rule, device=CPU).build(tensors), device_values(tensors, rule, scale, shift))


def test_no_images_give_empty_tensors() -> None:
    assert PixelBuilder(FixedRule(size=28), device=CPU).build([]).shape == (0, 3, 28, 28)
    assert PixelBuilder(NativeRule(), device=CPU).build([]).shape == (0, 1176)
    assert grid_thw([]).shape == (0, 3)


@pytest.mark.gpu
@pytest.mark.parametrize("rule", [FixedRule(size=224), NativeRule()], ids=["fixed", "native"])
def test_values_are_equal_to_the_last_bit_on_cuda_and_nothing_waits(rule: ResizeRule) -> None:
    tensors, _ = resized(pictures(SIZES), rule)
    expected = PixelBuilder(rule, device=CPU).build(tensors)
    device = torch.device("cuda", torch.cuda.current_device())
    there = [tensor.to(device) for tensor in tensors]
    builder = PixelBuilder(rule, device=device)
    torch.cuda.set_sync_debug_mode("error")
    try:
        values = builder.build(there)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(values.cpu(), expected)
