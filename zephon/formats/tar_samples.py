"""Which members of a tar make a sample: those with one basename."""

from __future__ import annotations

import re

_META = re.compile(rb"__[^/]*__($|/)")


def split_name(name: bytes) -> tuple[bytes, bytes] | None:
    """Return (key, extension): the path up to the first dot of its last part, and what follows that dot.

    None for members that belong to no sample, by WebDataset's rules: no dot, nothing before it, or a
    path that begins with a part like __this__.
    """
    slash = name.rfind(b"/")
    dot = name.find(b".", slash + 1)
    if dot <= slash + 1 or (name.startswith(b"__") and _META.match(name)):
        return None
    return name[:dot], name[dot + 1 :]


class Grouper:
    """Numbers samples in the order of their first members.

    A member joins the latest sample of its key, also where other samples' members lie between, unless
    that sample has its extension already: then it begins another sample, so that nothing is lost.
    """

    def __init__(self) -> None:
        self.count = 0
        self._latest: dict[bytes, int] = {}
        self._extensions: list[tuple[bytes, ...]] = []
        self._shapes: dict[tuple[bytes, ...], tuple[bytes, ...]] = {}
        self._alone: dict[bytes, tuple[bytes, ...]] = {}

    def place(self, key: bytes, extension: bytes) -> int:
        """Return the number of the sample that a member belongs to; `count` grows where it is a new one."""
        number = self._latest.get(key)
        if number is not None:
            extensions = self._extensions[number]
            if extension not in extensions:
                self._extensions[number] = self._shape((*extensions, extension))
                return number
        number = self._latest[key] = self.count
        self._extensions.append(self._alone.get(extension) or self._shape((extension,)))
        self.count = number + 1
        return number

    def _shape(self, extensions: tuple[bytes, ...]) -> tuple[bytes, ...]:
        # Shared, because millions of samples have the same few.
        shape = self._shapes.setdefault(extensions, extensions)
        if len(shape) == 1:
            self._alone[shape[0]] = shape
        return shape
