"""JSON lines: plain, .gz and .zst. A line is a sample; blank lines are none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO

import msgspec
import numpy as np
from xxhash import xxh3_64_intdigest

from zephon.formats.blocks import BlockTable, Cutter, Limits, OnTruncated
from zephon.formats.cache import decoded
from zephon.formats.changed import changed
from zephon.formats.decode import pieces
from zephon.formats.json_value import json_value
from zephon.formats.lines import line_bounds, whole_lines
from zephon.formats.names import compression_of
from zephon.formats.sample import Reading, Sample
from zephon.formats.units import with_unit
from zephon.page import Location
from zephon.stores.protocol import Stat, Store

_BOM = b"\xef\xbb\xbf"


class JsonlFormat:
    """Lines of JSON objects; `unit` says what has to be decoded first, as in zephon.formats.decode.pieces."""

    def index(self, store: Store, path: str, size: int, limits: Limits, *, on_truncated: OnTruncated) -> BlockTable:
        """Return the block table; a compressed shard is decoded once for it.

        A compressed stream that is cut off raises DataError whatever `on_truncated` says: no block of its
        unit could be read.
        """
        cutter = Cutter(limits)
        for unit, portions in whole_lines(pieces(store, path, compression_of(path))):
            decoded_bytes = 0
            for offset, lines in portions:
                starts, ends = line_bounds(lines)
                decoded_bytes = offset + len(lines)
                if len(starts):
                    cutter.add(starts + offset, ends + offset, np.ones(len(starts), dtype=np.int64), ends - starts)
            cutter.close(unit=unit, decoded_bytes=decoded_bytes if unit >= 0 else None)
        return cutter.table()

    def read(
        self, store: Store, location: Location, samples: Sequence[int], reading: Reading
    ) -> tuple[list[Sample], int]:
        """Return the lines' objects, and the hash of the block's bytes; columns don't matter here.

        A line that is no JSON object is a sample with an error.
        """
        stat = store.stat(location.path)
        place = (location, stat)
        held = decoded().get(place)
        if held is None:
            raw = _raw(store, location, stat, reading)
            lines = _split(raw)
            if len(raw) != location.size or len(lines) != location.samples:
                raise changed(location.path)
            held = (lines, xxh3_64_intdigest(raw))
            decoded().put(place, held, len(raw))
        lines, digest = held
        decoder = msgspec.json.Decoder()
        return [_sample(lines[i], str(location.first + i), location.first + i, decoder) for i in samples], digest

    def stream(self, store: Store, path: str) -> Iterator[Sample]:
        """Yield all samples of a shard, whatever its compression, in bounded memory."""
        decoder = msgspec.json.Decoder()
        for number, line in enumerate(stream_lines(store, path)):
            yield _sample(line, str(number), number, decoder)


def stream_lines(store: Store, path: str) -> Iterator[bytes]:
    """Yield a shard's lines that aren't blank, without their ends, nor a byte order mark before the first."""
    first = True
    for _, portions in whole_lines(pieces(store, path, compression_of(path))):
        for _, lines in portions:
            for line in _split(lines):
                yield line.removeprefix(_BOM) if first else line
                first = False


def _split(raw: bytes) -> list[bytes]:
    """Return the lines that aren't blank, without their ends; ten times as fast as bytes.split on long lines."""
    lines = []
    start = 0
    while (end := raw.find(b"\n", start)) >= 0:
        lines.append(raw[start:end])
        start = end + 1
    lines.append(raw[start:])
    return [line for line in lines if line and not line.isspace()]


def _sample(line: bytes, key: str, number: int, decoder: msgspec.json.Decoder[object]) -> Sample:
    if not number:
        line = line.removeprefix(_BOM)
    try:
        value = json_value(line, decoder)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Sample(key, {}, f"no JSON: {error}")
    if not isinstance(value, dict):
        return Sample(key, {}, f"no JSON object but {type(value).__name__}, where each line is to be an object")
    return Sample(key, value)


def _raw(store: Store, location: Location, stat: Stat, reading: Reading) -> bytes:
    """Return a block's bytes, from the shard, the spill, or its unit decoded now."""
    path, start, stop = location.path, location.offset, location.offset + location.size
    if location.unit < 0:
        return store.read(path, start, location.size)
    if location.large or location.medium:

        def write(file: BinaryIO) -> None:
            for piece in _unit_pieces(store, location):
                file.write(piece)

        raw = with_unit(location, stat, None, write, lambda unit: unit.read(start, location.size), reading)
        if raw is not None:
            return raw
    place = (path, stat, location.unit)
    unit: bytes | None = decoded().get(place)
    if unit is None:
        unit = b"".join(_unit_pieces(store, location))
        decoded().put(place, unit, len(unit))
    return unit[start:stop]


def _unit_pieces(store: Store, location: Location) -> Iterable[bytes]:
    for unit, piece in pieces(store, location.path, compression_of(location.path), start=location.unit):
        if unit != location.unit:
            return
        yield piece
