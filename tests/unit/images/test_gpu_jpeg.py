"""Decoding on the GPU: near the CPU's pixels in every orientation, and the CPU for all that it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import simplejpeg
import torch
from odd_images import bad_images, colours, exif, good_images, save, stored

from zephon.errors import ConfigError
from zephon.images.decode import choose_decoder, decode
from zephon.images.gpu_jpeg import GpuDecoder
from zephon.images.header import ImageError, read_header
from zephon.images.rules import FixedRule, NativeRule

CPU_ONLY = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")


class Planes:
    """Decodes on the CPU to what torchvision returns, or refuses."""

    def __init__(self, *, refuses: bool = False) -> None:
        self.calls = 0
        self._refuses = refuses

    def __call__(self, data: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self._refuses:
            raise RuntimeError("nvjpegDecode failed: 3")
        pixels = simplejpeg.decode_jpeg(data.numpy().tobytes(), "RGB", strict=False)
        return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("rule", [FixedRule(size=56), NativeRule()], ids=["fixed", "native"])
def test_pixels_are_within_a_level_of_the_cpu_s(rule: FixedRule | NativeRule, orientation: int) -> None:
    planes = Planes()
    data = save(stored(colours(150, 230), orientation), "JPEG", exif=exif(orientation))
    info = read_header(data, max_pixels=1 << 20)
    geometry = rule.plan(info)
    pixels = GpuDecoder(planes)(data, info, geometry)
    expected = decode(data, info, geometry)
    assert planes.calls == 1
    assert pixels.shape == expected.shape == (geometry.height, geometry.width, 3)
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    assert np.abs(pixels.astype(int) - expected).mean() < 0.3


def test_what_the_gpu_refuses_or_doesn_t_know_is_decoded_on_the_cpu() -> None:
    rule = FixedRule(size=56)
    refusing, planes = Planes(refuses=True), Planes()
    for name, image in good_images().items():
        info = read_header(image.data, max_pixels=1 << 20)
        expected = decode(image.data, info, rule.plan(info))
        assert np.array_equal(GpuDecoder(refusing)(image.data, info, rule.plan(info)), expected), name
        if info.format != "jpeg" or info.components == 4:
            assert np.array_equal(GpuDecoder(planes)(image.data, info, rule.plan(info)), expected), name
    assert refusing.calls > 10
    assert planes.calls == 0


def test_damage_is_the_same_error_as_on_the_cpu() -> None:
    data = bad_images()["damaged.png"].data
    info = read_header(data, max_pixels=1 << 20)
    with pytest.raises(ImageError, match="can't be decoded as png"):
        GpuDecoder(Planes())(data, info, FixedRule(size=56).plan(info))


@CPU_ONLY
def test_without_a_gpu_auto_is_the_cpu_and_cuda_a_config_error() -> None:
    assert choose_decoder("cpu", place="images.decoder") is decode
    assert choose_decoder("auto", place="images.decoder") is decode
    with pytest.raises(ConfigError, match=r"images\.decoder: torch sees no CUDA device here; set decoder: cpu or auto"):
        choose_decoder("cuda", place="images.decoder")


def test_without_torchvision_cuda_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise RuntimeError("operator torchvision::nms does not\nexist")

    monkeypatch.setattr("zephon.images.gpu_jpeg.torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("zephon.images.gpu_jpeg.import_module", missing)
    with pytest.raises(
        ConfigError, match=r"needs torchvision \(RuntimeError: operator torchvision::nms does not exist\)"
    ):
        choose_decoder("cuda", place="images.decoder")
    assert choose_decoder("auto", place="images.decoder") is decode


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_nvjpeg_s_pixels_are_near_the_cpu_s() -> None:
    pytest.importorskip("torchvision")
    decoder = choose_decoder("cuda", place="images.decoder")
    for orientation in range(1, 9):
        data = save(stored(colours(150, 230), orientation), "JPEG", exif=exif(orientation))
        info = read_header(data, max_pixels=1 << 20)
        geometry = NativeRule().plan(info)
        difference = np.abs(decoder(data, info, geometry).astype(int) - decode(data, info, geometry))
        assert difference.mean() < 1.5
