"""Decoding compressed streams piece by piece, and the units at which decoding can start."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import zstandard

from zephon.errors import DataError
from zephon.stores.protocol import Store

PLAIN = -1
CHUNK = 1 << 18
PLAIN_CHUNK = 1 << 22
GZIP_PIECE = 1 << 22
_SKIPPABLE = bytes.fromhex("2a4d18")
_ZSTD_MAGIC = bytes.fromhex("28b52ffd")


def pieces(store: Store, path: str, compression: str, *, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Yield (unit, decoded bytes) from a unit's start on, to the end of the file.

    A unit is PLAIN without compression, 0 for gzip, and for zstd the offset of the first of the frames
    that belong together: a unit ends with the first frame after which a line has ended. So independent
    frames that part a line form one unit. Raises DataError where the stream is damaged or cut off.
    """
    size = store.size(path)
    if compression == "gz":
        return _gzip(store, path, size)
    if compression == "zst":
        return _zstd(store, path, size, start)
    return _plain(store, path, size)


def _plain(store: Store, path: str, size: int) -> Iterator[tuple[int, bytes]]:
    for offset in range(0, size, PLAIN_CHUNK):
        yield PLAIN, store.read(path, offset, min(PLAIN_CHUNK, size - offset))


def _gzip(store: Store, path: str, size: int) -> Iterator[tuple[int, bytes]]:
    offset = 0
    rest = b""
    member = zlib.decompressobj(31)
    fresh = True
    while offset < size or rest:
        if not rest:
            rest = store.read(path, offset, min(CHUNK, size - offset))
            offset += len(rest)
        if fresh and offset > len(rest):
            # Zeros that pad the file to a block are no member.
            rest = rest.lstrip(b"\0")
            if not rest:
                continue
        try:
            data = member.decompress(rest, GZIP_PIECE)
        except zlib.error as error:
            raise _damaged(path, "gzip", offset - len(rest), str(error)) from None
        fresh = False
        rest = member.unconsumed_tail
        if data:
            yield 0, data
        if member.eof:
            rest = member.unused_data
            member = zlib.decompressobj(31)
            fresh = True
    if not fresh:
        raise _cut_off(path, "gzip", size)


def _zstd(store: Store, path: str, size: int, start: int) -> Iterator[tuple[int, bytes]]:
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 31)
    unit = position = start
    rest = b""
    while position < size:
        head = rest[:8] if len(rest) >= 8 else store.read(path, position, min(8, size - position))
        if head[1:4] == _SKIPPABLE and head[0] >> 4 == 5:
            if len(head) < 8:
                raise _cut_off(path, "zstd", size)
            position += 8 + int.from_bytes(head[4:8], "little")
            if position > size:
                raise _cut_off(path, "zstd", size)
            rest = b""
            continue
        if head[:4] != _ZSTD_MAGIC:
            raise _damaged(path, "zstd", position, "no frame begins here")
        frame = decompressor.decompressobj()
        reached = position + len(rest)
        last = b""
        while not frame.eof:
            if not rest:
                if reached >= size:
                    raise _cut_off(path, "zstd", size)
                rest = store.read(path, reached, min(CHUNK, size - reached))
                reached += len(rest)
            try:
                data = frame.decompress(rest)
            except zstandard.ZstdError as error:
                raise _damaged(path, "zstd", reached - len(rest), str(error)) from None
            rest = b""
            if data:
                yield unit, data
                last = data[-1:]
        rest = frame.unused_data
        position = reached - len(rest)
        if last == b"\n":
            unit = position
            # Tells whoever reads one unit that it has ended, before the next frame is decoded.
            yield unit, b""


def _damaged(path: str, what: str, offset: int, why: str) -> DataError:
    why = " ".join(why.split())
    return DataError(
        f"{path}: damaged {what} data near byte {offset} ({why}); fetch the shard again, or leave it out of the source"
    )


def _cut_off(path: str, what: str, size: int) -> DataError:
    return DataError(
        f"{path}: the {what} data is cut off at byte {size}; fetch the shard again, or leave it out of the source"
    )
