"""Pictures as the web has them: good ones in every mode with the pixels they show, and bad ones with their error."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]
HEIGHT, WIDTH = 48, 80
WHITE = 255


class Good(NamedTuple):
    """Compressed bytes, the picture they show, and by how many levels a pixel may differ on average."""

    data: bytes
    pixels: Pixels
    tolerance: float = 0.0


class Bad(NamedTuple):
    """Bytes without a picture, and what the error says of them."""

    data: bytes
    message: str


def colours(height: int = HEIGHT, width: int = WIDTH) -> Pixels:
    """A picture of which no two corners look alike."""
    y, x = np.mgrid[0:height, 0:width]
    planes = (255 * x / width, 255 * y / height, 200 - 100 * x / width + 40 * y / height)
    return np.stack(planes, axis=2).astype(np.uint8)


def stored(pixels: Pixels, orientation: int) -> Pixels:
    """How a camera stores a picture that EXIF's `orientation` sets upright."""
    flipped = {
        1: pixels,
        2: pixels[:, ::-1],
        3: np.rot90(pixels, 2),
        4: pixels[::-1],
        5: pixels.transpose(1, 0, 2),
        6: np.rot90(pixels, 1),
        7: np.rot90(pixels, 2).transpose(1, 0, 2),
        8: np.rot90(pixels, -1),
    }
    return np.ascontiguousarray(flipped[orientation])


def save(image: Image.Image | NDArray[Any], kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(buffer, kind, **options)
    return buffer.getvalue()


def exif(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[274] = orientation
    return tags


def png(width: int, height: int, *, depth: int, colour: int, rows: bytes, before: bytes = b"") -> bytes:
    """A PNG file written by hand; `before` are chunks before the pixels."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + before + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def with_alpha(pixels: Pixels) -> tuple[Pixels, Pixels]:
    """An RGBA picture, and what it shows on white."""
    alpha = np.linspace(0, 255, WIDTH).astype(np.uint8)[None, :, None].repeat(HEIGHT, axis=0)
    shown = (pixels * (alpha / 255.0) + WHITE * (1 - alpha / 255.0)).round().astype(np.uint8)
    return np.concatenate((pixels, alpha), axis=2), shown


def half_clear() -> tuple[Image.Image, Pixels]:
    """A palette picture whose left half is a transparent colour, and what it shows on white."""
    index = np.zeros((HEIGHT, WIDTH), dtype=np.uint8)
    index[:, WIDTH // 2 :] = 1
    image = Image.fromarray(index).convert("P")
    image.putpalette([10, 20, 30, 200, 100, 50])
    shown = np.full((HEIGHT, WIDTH, 3), WHITE, dtype=np.uint8)
    shown[:, WIDTH // 2 :] = (200, 100, 50)
    return image, shown


def grey_pictures() -> dict[str, Good]:
    grey = np.asarray(Image.fromarray(colours()).convert("L"))
    shown = grey[:, :, None].repeat(3, axis=2)
    ramp = np.arange(HEIGHT * WIDTH, dtype=np.uint16).reshape(HEIGHT, WIDTH) * 17
    wide = (ramp >> 8).astype(np.uint8)[:, :, None].repeat(3, axis=2)
    alpha = np.full_like(grey, 128)
    on_white = (shown * (128 / 255) + WHITE * (127 / 255)).round().astype(np.uint8)
    checks = (np.indices((HEIGHT, WIDTH)).sum(axis=0) // 8 % 2).astype(bool)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in ramp)
    return {
        "grey.jpg": Good(save(grey, "JPEG", quality=95), shown, 1.0),
        "grey.png": Good(save(grey, "PNG"), shown),
        "grey-16.png": Good(png(WIDTH, HEIGHT, depth=16, colour=0, rows=rows), wide),
        "grey-16.tif": Good(save(ramp, "TIFF"), wide),
        "grey-alpha.png": Good(save(Image.fromarray(np.dstack((grey, alpha)), "LA"), "PNG"), on_white, 0.6),
        "one-bit.png": Good(save(Image.fromarray(checks), "PNG"), (checks * np.uint8(255))[:, :, None].repeat(3, 2)),
    }


def colour_pictures() -> dict[str, Good]:
    rgb = colours()
    image = Image.fromarray(rgb)
    rgba, on_white = with_alpha(rgb)
    palette = image.quantize(64)
    shown = np.asarray(palette.convert("RGB"))
    clear, clear_shown = half_clear()
    cmyk = image.convert("CMYK")
    wide = (rgb.astype(np.uint16) << 8) | 0x5A
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in wide)
    keyed = rgb.copy()
    keyed[:10] = (1, 2, 3)
    keyed_shown = keyed.copy()
    keyed_shown[:10] = WHITE
    others = [Image.fromarray(255 - rgb), Image.fromarray(rgb // 2)]
    odd = colours(1, 7)
    baseline = save(image, "JPEG", quality=95)
    return {
        "plain.jpg": Good(baseline, rgb, 2.0),
        "progressive.jpg": Good(save(image, "JPEG", quality=95, progressive=True), rgb, 2.0),
        "full-chroma.jpg": Good(save(image, "JPEG", quality=95, subsampling=0), rgb, 1.0),
        "cmyk.jpg": Good(save(cmyk, "JPEG", quality=95), rgb, 2.0),
        "rubbish-between-segments.jpg": Good(baseline[:20] + b"\0\xff\0rubbish" + baseline[20:], rgb, 2.0),
        "rubbish-after-the-end.jpg": Good(baseline + b"rubbish" * 100, rgb, 2.0),
        "named-jpg-but-png.jpg": Good(save(image, "PNG"), rgb),
        "colour-16.png": Good(png(WIDTH, HEIGHT, depth=16, colour=2, rows=rows), rgb),
        "palette.png": Good(save(palette, "PNG"), shown),
        "palette-clear.png": Good(save(clear, "PNG", transparency=0), clear_shown),
        "palette-alpha.png": Good(save(clear, "PNG", transparency=b"\0\xff"), clear_shown),
        "alpha.png": Good(save(rgba, "PNG"), on_white, 0.6),
        "clear-colour.png": Good(save(keyed, "PNG", transparency=(1, 2, 3)), keyed_shown),
        "one-row.png": Good(save(odd, "PNG"), odd),
        "turned.png": Good(save(stored(rgb, 6), "PNG", exif=exif(6)), rgb),
        "still.gif": Good(save(palette, "GIF"), shown),
        "clear.gif": Good(save(clear, "GIF", transparency=0), clear_shown),
        "animated.gif": Good(save(palette, "GIF", save_all=True, append_images=others), shown),
        "lossy.webp": Good(save(image, "WEBP", quality=95), rgb, 3.0),
        "lossless.webp": Good(save(image, "WEBP", lossless=True), rgb),
        "alpha.webp": Good(save(rgba, "WEBP", lossless=True, exact=True), on_white, 0.6),
        "animated.webp": Good(save(image, "WEBP", lossless=True, save_all=True, append_images=others), rgb),
        "turned.webp": Good(save(stored(rgb, 5), "WEBP", lossless=True, exif=exif(5)), rgb),
        "plain.bmp": Good(save(image, "BMP"), rgb),
        "palette.bmp": Good(save(palette, "BMP"), shown),
        "plain.tif": Good(save(image, "TIFF"), rgb),
        "packed.tif": Good(save(image, "TIFF", compression="tiff_lzw"), rgb),
        "cmyk.tif": Good(save(cmyk, "TIFF"), rgb),
        "turned.tif": Good(save(stored(rgb, 8), "TIFF", exif=exif(8)), rgb),
    }


def turned_pictures() -> dict[str, Good]:
    rgb = colours()
    return {
        f"turned-{number}.jpg": Good(save(stored(rgb, number), "JPEG", quality=95, exif=exif(number)), rgb, 2.0)
        for number in range(1, 9)
    }


def good_images() -> dict[str, Good]:
    return {**grey_pictures(), **colour_pictures(), **turned_pictures()}


def bad_images() -> dict[str, Bad]:
    image = Image.fromarray(colours())
    jpeg, whole = save(image, "JPEG"), save(image, "PNG")
    progressive = save(image, "JPEG", progressive=True)
    scan = progressive.index(b"\xff\xda")
    second = progressive.index(b"\xff\xda", scan + 2)
    webp = save(image, "WEBP", lossless=True)
    gif = save(image.quantize(8), "GIF")
    bmp = save(image, "BMP")
    floats = save(np.zeros((4, 4), dtype=np.float32), "TIFF")
    pixels = whole.index(b"IDAT") + 6
    frame = jpeg.index(b"\xff\xc0") + 5
    huge = struct.pack(">HH", 50_000, 50_000)
    tiff = save(image, "TIFF")
    return {
        "empty.jpg": Bad(b"", "holds no bytes"),
        "zeros.png": Bad(bytes(4096), "is no JPEG, PNG, GIF, WebP, BMP or TIFF image"),
        "text.jpg": Bad(b"Not found\n", "starts with b'Not foun'"),
        "page.jpg": Bad(b"<!DOCTYPE html><html></html>", "is no JPEG"),
        "magic-alone.jpg": Bad(jpeg[:3], "cut off"),
        "cut-header.jpg": Bad(jpeg[: frame + 2], "cut off"),
        "cut.jpg": Bad(jpeg[: len(jpeg) // 2 + 200], "cut off"),
        "cut.png": Bad(whole[:-20], "cut off"),
        "cut-header.png": Bad(whole[:20], "cut off"),
        "cut.webp": Bad(webp[:-8], "cut off"),
        "cut.gif": Bad(gif[:-30], "cut off"),
        "cut.bmp": Bad(bmp[:-100], "cut off"),
        "cut.tif": Bad(tiff[: len(tiff) // 2], "cut off"),
        "huge.jpg": Bad(jpeg[:frame] + huge + jpeg[frame + 4 :], "has 50,000 x 50,000 pixels"),
        "huge.png": Bad(png(50_000, 50_000, depth=8, colour=2, rows=b""), "has 50,000 x 50,000 pixels"),
        "huge.gif": Bad(gif[:6] + b"\x50\xc3\x50\xc3" + gif[10:], "has 50,000 x 50,000 pixels"),
        "huge.webp": Bad(vp8x(50_000, 50_000), "has 50,000 x 50,000 pixels"),
        "huge.bmp": Bad(bmp[:18] + struct.pack("<ii", 50_000, -50_000) + bmp[26:], "cut off|50,000 x 50,000"),
        "no-pixels.png": Bad(png(0, 8, depth=8, colour=2, rows=b""), "has no pixels"),
        "many-scans.jpg": Bad(
            progressive[:scan] + progressive[scan:second] * 1000 + progressive[scan:], "1,?0\\d\\d scans"
        ),
        "damaged.png": Bad(whole[:pixels] + bytes(60) + whole[pixels + 60 :], "can't be decoded as png"),
        "damaged.webp": Bad(webp[:30] + b"\xff" * 60 + webp[90:], "can't be decoded as webp"),
        "text-bomb.png": Bad(
            png(
                8,
                8,
                depth=8,
                colour=2,
                rows=bytes(25 * 8),
                before=chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 26))),
            ),
            "can't be decoded as png",
        ),
        "few-rows.png": Bad(png(5000, 5000, depth=8, colour=2, rows=bytes(100)), "can't be decoded as png"),
        "floats.tif": Bad(floats, "floating-point pixels"),
        "no-frame.gif": Bad(gif[:13] + b"\x3b", "without a frame|cut off"),
        "no-frame.jpg": Bad(b"\xff\xd8\xff\xd9", "without a frame"),
        "endless-fill.jpg": Bad(b"\xff\xd8" + b"\xff" * 1_000_000, "cut off"),
        "no-folder.tif": Bad(b"II*\0\xff\xff\xff\x7f", "cut off"),
    }


def vp8x(width: int, height: int) -> bytes:
    body = (
        b"VP8X"
        + struct.pack("<I", 10)
        + bytes(4)
        + (width - 1).to_bytes(3, "little")
        + (height - 1).to_bytes(3, "little")
    )
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body
