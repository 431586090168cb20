"""One tar header, read with all the formats' rules: v7, ustar, PAX and GNU."""

from __future__ import annotations

from typing import NamedTuple

BLOCK = 512
_ZEROS = bytes(BLOCK)


class Damage(Exception):  # noqa: N818 - never leaves the tar format, which adds the place
    """What is wrong with a header."""


class Header(NamedTuple):
    """A header's own name, size and kind (its type flag as one byte)."""

    name: bytes
    size: int
    kind: bytes


def end_of_archive(block: bytes) -> bool:
    """Return whether a block is the end-of-archive marker."""
    return block == _ZEROS


def parse_header(block: bytes) -> Header:
    """Return what a 512-byte header says; Damage where its checksum or a number is wrong."""
    stored = _number(block[148:156], "checksum")
    unsigned = sum(block) - sum(block[148:156]) + 8 * 32
    # Some old writers summed signed bytes.
    signed = unsigned - 256 * sum(byte > 127 for at, byte in enumerate(block) if not 148 <= at < 156)
    if stored not in (unsigned, signed):
        raise Damage("no tar header (wrong checksum)")
    name = _text(block[:100])
    # GNU's own format keeps times where POSIX has the prefix.
    if block[257:263] == b"ustar\0" and block[345]:
        name = _text(block[345:500]) + b"/" + name
    size = _number(block[124:136], "size")
    if size < 0:
        raise Damage(f"a size of {size}")
    return Header(name, size, block[156:157])


def parse_pax(payload: bytes) -> dict[bytes, bytes]:
    """Return the records of a PAX header; Damage where they aren't well-formed."""
    records: dict[bytes, bytes] = {}
    at = 0
    while at < len(payload) and payload[at]:
        space = payload.find(b" ", at, at + 20)
        digits = payload[at:space] if space > 0 else b""
        if not digits.isdigit() or int(digits) < len(digits) + 3:
            raise Damage("a damaged PAX header")
        end = at + int(digits)
        name, equals, value = payload[space + 1 : end - 1].partition(b"=")
        if end > len(payload) or payload[end - 1 : end] != b"\n" or not equals:
            raise Damage("a damaged PAX header")
        if name == b"size" and not value.isdigit():
            raise Damage(f"a PAX size of {value!r}")
        records[name] = value
        at = end
    return records


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _number(field: bytes, what: str) -> int:
    """Return an octal or (GNU) base-256 number."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    if field[0] == 0xFF:
        return int.from_bytes(field, "big", signed=True)
    digits = field.partition(b"\0")[0].strip()
    if digits and not digits.isdigit():
        raise Damage(f"no tar header (its {what} is no number)")
    try:
        return int(digits or b"0", 8)
    except ValueError:
        raise Damage(f"no tar header (its {what} is no number)") from None
