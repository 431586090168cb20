"""What the oracle is told, and the page's randomness, written from its formulas."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

BITS64 = (1 << 64) - 1


@dataclass(frozen=True)
class Doc:
    """A document: its tokens, and what its stage says about it."""

    tokens: tuple[int, ...]
    mask: tuple[int, ...] | None = None
    group: int = 0
    amounts: tuple[tuple[str, int], ...] = ()  # declared metadata that budgets bound
    images: tuple[tuple[int, ...], ...] = ()  # place, tokens, frames, height, width, grid (t, h, w), hash


@dataclass(frozen=True)
class Corpus:
    """A source: blocks of samples of documents, and the `mean_tokens` of its index."""

    blocks: tuple[tuple[tuple[Doc, ...], ...], ...]
    mean_tokens: int = 1
    epochs: int | None = None


@dataclass(frozen=True)
class Plan:
    """All that fixes the stream, as plain data; `entries` are (from, weights), the first from 0."""

    seed: int
    lanes: int
    sequence_length: int
    sources: dict[str, Corpus]
    entries: tuple[tuple[int, dict[str, str | float]], ...]
    by: str = "tokens"
    kind: str = "best_fit"
    pool: int = 32
    long: str = "split"
    align: int = 1
    homogeneous: str | dict[str, list[str]] = "none"
    max_age: int | None = None
    shuffles: tuple[int, ...] = ()
    spread: int = 4
    mask_boundary: bool = True
    pad: int = 0
    budgets: tuple[tuple[str, int], ...] = ()
    length: int | None = None
    restart: bool = False

    @property
    def capacity(self) -> int:
        return self.sequence_length + 1


@dataclass
class Item:
    """A document on its way to a row, from token `start` on."""

    doc: Doc
    tokens: tuple[int, ...]
    source: str
    q: int
    sample: int
    part: int
    start: int = 0
    pushed: int = -1  # number of its push into the packer, and rows made by then
    born: int = 0

    @property
    def remaining(self) -> int:
        return len(self.tokens) - self.start


@dataclass(frozen=True)
class Piece:
    """Tokens [start, stop) of a document, at `offset` of a row."""

    item: Item
    start: int
    stop: int
    offset: int

    @property
    def reference(self) -> tuple[str, int, int, int, int, int, int]:
        i = self.item
        return (i.source, i.q, i.sample, i.part, self.start, self.stop, self.offset)


def key(*parts: int | str) -> int:
    data = b""
    for part in parts:
        text = (part if isinstance(part, str) else "#" + str(part)).encode("utf-8")
        data += struct.pack("<I", len(text)) + text
    return struct.unpack("<Q", hashlib.blake2b(data, digest_size=8).digest())[0]


def mix(z: int) -> int:
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & BITS64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & BITS64
    return z ^ z >> 31


def draw(k: int, c: int) -> int:
    return mix(k ^ mix((c + 1) * 0x9E3779B97F4A7C15 & BITS64))


def shuffled(k: int, size: int) -> list[int]:
    return sorted(range(size), key=lambda i: draw(k, i))  # sorted() is stable


def permute(k: int, slot: int, size: int) -> int:
    if size < 4096:
        return shuffled(k, size)[slot]
    h = -(-(size - 1).bit_length() // 2)
    value = slot
    while True:
        left, right = value // 2**h, value % 2**h
        for number in range(6):
            left, right = right, left ^ (draw(k, number * 2**40 | right) % 2**h)
        value = left * 2**h + right
        if value < size:
            return value
