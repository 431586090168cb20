"""Odd images: each gives the picture that it shows, or an error that says what is wrong with its bytes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from odd_images import bad_images, colours, good_images, save, stored

from zephon.images.decode import decode_full
from zephon.images.header import ImageError, read_header
from zephon.images.info import DEFAULT_MAX_PIXELS

GOOD = good_images()
BAD = bad_images()
HERE = Path(__file__).parent
# Decodes all of them with 512 MiB more than the imports take, and says what was used at most.
BOUNDED = """
import resource, sys, time
sys.path.insert(0, sys.argv[1])
from odd_images import bad_images, good_images
from zephon.images.decode import decode_full
from zephon.images.header import ImageError, read_header
from zephon.images.info import DEFAULT_MAX_PIXELS
images = [image.data for image in (*good_images().values(), *bad_images().values())]
decode_full(images[0], read_header(images[0], max_pixels=1 << 20))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for data in images:
    try:
        decode_full(data, read_header(data, max_pixels=DEFAULT_MAX_PIXELS))
    except ImageError:
        pass
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def test_there_are_enough() -> None:
    assert len(GOOD) + len(BAD) > 60


@pytest.mark.parametrize("name", GOOD)
def test_good_images_give_the_picture_they_show(name: str) -> None:
    data, expected, tolerance = GOOD[name]
    info = read_header(data, max_pixels=DEFAULT_MAX_PIXELS)
    assert (info.height, info.width) == expected.shape[:2]
    pixels = decode_full(data, info)
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    assert np.abs(pixels.astype(int) - expected).mean() <= tolerance
    assert np.array_equal(pixels, decode_full(memoryview(data), info))


@pytest.mark.parametrize("name", BAD)
@pytest.mark.timeout(20)
def test_bad_images_give_the_named_error(name: str) -> None:
    data, message = BAD[name]
    with pytest.raises(ImageError, match=message) as caught:
        decode_full(data, read_header(data, max_pixels=DEFAULT_MAX_PIXELS))
    assert "\n" not in str(caught.value)


def test_odd_images_take_little_memory() -> None:
    command = [sys.executable, "-W", "error", "-c", BOUNDED, str(HERE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    # The largest that is begun has 5,000 x 5,000 pixels: 75 MB. The text in text-bomb.png would take 64 MiB more.
    assert int(done.stdout) < 128


def test_what_is_transparent_lies_on_the_background() -> None:
    data = GOOD["palette-clear.png"].data
    pixels = decode_full(data, read_header(data, max_pixels=1 << 20), background=(9, 8, 7))
    assert pixels[0, 0].tolist() == [9, 8, 7]


def test_cut_anywhere_is_an_image_error_or_a_picture() -> None:
    for name in (
        "turned-6.jpg",
        "progressive.jpg",
        "alpha.png",
        "animated.gif",
        "turned.webp",
        "palette.bmp",
        "turned.tif",
    ):
        data = GOOD[name].data
        for size in {*range(0, min(len(data), 300), 7), *range(300, len(data), 101)}:
            try:
                decode_full(data[:size], read_header(data[:size], max_pixels=1 << 20))
            except ImageError:
                continue
            assert name == "animated.gif", f"{name} gave a picture of {size} of {len(data)} bytes"


# Pillow warns of damaged TIFF tags.
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_any_damaged_byte_is_an_image_error_or_a_picture_of_the_header_s_size() -> None:
    for name in ("turned-6.jpg", "palette-clear.png", "animated.gif", "alpha.webp", "palette.bmp", "packed.tif"):
        data = GOOD[name].data
        for place in range(0, len(data), max(1, len(data) // 150)):
            damaged = data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]
            try:
                info = read_header(damaged, max_pixels=1 << 20)
                pixels = decode_full(damaged, info)
            except ImageError:
                continue
            assert pixels.shape == (info.height, info.width, 3)


def test_a_jpeg_that_the_quick_decoder_refuses_is_pillow_s() -> None:
    # A restart marker that nobody announced: a warning to libjpeg, which some cameras earn.
    data = save(stored(colours(), 6), "JPEG", quality=95)
    place = data.rindex(b"\xff\xd9")
    damaged = data[:place] + b"\xff\xd0" + data[place:]
    info = read_header(damaged, max_pixels=1 << 20)
    assert decode_full(damaged, info).shape == (info.height, info.width, 3)
