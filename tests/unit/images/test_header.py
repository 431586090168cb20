"""Headers: the size and orientation that Pillow finds, from the header alone."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from odd_images import colours, exif, good_images, save, stored
from PIL import Image, ImageOps

from zephon.images.decode import check_installed
from zephon.images.header import ImageError, read_header
from zephon.images.info import ImageInfo

GOOD = good_images()


@pytest.mark.parametrize("name", GOOD)
def test_headers_say_what_pillow_finds(name: str) -> None:
    info = read_header(GOOD[name].data, max_pixels=1 << 20)
    image = Image.open(io.BytesIO(GOOD[name].data))
    upright = ImageOps.exif_transpose(image)
    assert (info.width, info.height) == upright.size
    assert info.format == str(image.format).lower()
    assert read_header(memoryview(GOOD[name].data), max_pixels=1 << 20) == info


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_orientation_is_found_in_every_format_that_has_one(kind: str, orientation: int) -> None:
    data = save(stored(colours(30, 50), orientation), kind, exif=exif(orientation))
    info = read_header(data, max_pixels=1 << 20)
    assert (info.width, info.height, info.orientation) == (50, 30, orientation)
    assert info.stored_size == ((30, 50) if orientation > 4 else (50, 30))


def test_damaged_exif_is_no_orientation() -> None:
    tagged = save(colours(), "JPEG", exif=exif(6))
    place = tagged.index(b"Exif\0\0") + 6
    upright = ImageInfo(format="jpeg", width=80, height=48, components=3)
    for damage in (b"XX*\0", tagged[place : place + 4] + b"\xff\xff\xff\xff"):
        data = tagged[:place] + damage + tagged[place + len(damage) :]
        assert read_header(data, max_pixels=1 << 20) == upright
    out_of_range = save(colours(), "JPEG", exif=exif(9))
    assert read_header(out_of_range, max_pixels=1 << 20) == upright


def test_the_limit_counts_pixels_and_holds_before_anything_is_decoded() -> None:
    data = save(colours(), "PNG")
    assert read_header(data, max_pixels=48 * 80).width == 80
    with pytest.raises(ImageError, match=r"^has 80 x 48 pixels, more than max_pixels=3,839$"):
        read_header(data, max_pixels=48 * 80 - 1)


def test_headers_need_no_library() -> None:
    code = (
        "import sys; from zephon.images.header import read_header; import zephon.images.decode, zephon.images.rules; "
        "print(sorted({'PIL', 'simplejpeg', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_missing_libraries_are_named_with_what_installs_them(tmp_path: Path) -> None:
    check_installed(place="sources.a.stage")
    code = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name in ('PIL', 'simplejpeg') else find(name, *a)\n"
        "from zephon.images.decode import check_installed\n"
        "check_installed(place='sources.a.stage')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=Path.cwd())
    assert (
        "ConfigError: sources.a.stage needs PIL and simplejpeg to decode images; pip install Pillow simplejpeg"
        in done.stderr
    )
