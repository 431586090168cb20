"""What a header says of an image, and the error for what is no image."""

from __future__ import annotations

from typing import Literal

import msgspec

Format = Literal["jpeg", "png", "gif", "webp", "bmp", "tiff"]
# A stage's default bound: 64 Mi pixels, 192 MiB once decoded.
DEFAULT_MAX_PIXELS = 1 << 26
# Above it Pillow warns of decompression bombs: a setting of the process, which we leave alone.
LARGEST_MAX_PIXELS = 89_478_485


class ImageError(ValueError):
    """The bytes give no picture; one line with the fact and, where there is one, the remedy.

    Depends on the bytes and the limits given alone. Stages make a bad sample of it.
    """


class ImageInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What an image's header says.

    format       jpeg | png | gif | webp | bmp | tiff
    width        pixels, once `orientation` is applied
    height       pixels, once `orientation` is applied
    orientation  1 to 8, as EXIF counts them: how the stored pixels are turned and mirrored; 1: not at all
    components   of a JPEG: 1 grey, 3 colour, 4 CMYK; 0: not said
    """

    format: Format
    width: int
    height: int
    orientation: int = 1
    components: int = 0

    @property
    def stored_size(self) -> tuple[int, int]:
        """Width and height of the pixels as they are stored."""
        return (self.height, self.width) if self.orientation > 4 else (self.width, self.height)


def turned(
    format: Format,  # noqa: A002  the struct's own word
    width: int,
    height: int,
    orientation: int,
    components: int = 0,
) -> ImageInfo:
    """Return the info of an image whose stored pixels have this size."""
    if orientation > 4:
        width, height = height, width
    return ImageInfo(format=format, width=width, height=height, orientation=orientation, components=components)


def one_line(error: Exception) -> str:
    """Return an error's type and message in one line."""
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
