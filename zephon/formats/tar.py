"""WebDataset tar: a sample is the members with one basename."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from xxhash import xxh3_64_intdigest

from zephon.errors import DataError
from zephon.formats.blocks import BlockTable, Cutter, Limits, OnTruncated
from zephon.formats.cache import decoded
from zephon.formats.changed import changed
from zephon.formats.sample import Column, Reading, Sample, column_names
from zephon.formats.tar_idx import walk_in_parts
from zephon.formats.tar_samples import Grouper
from zephon.formats.tar_walk import MemoryWindow, walk
from zephon.page import Location
from zephon.stores.protocol import Store

# One sample of a block that is in memory: its key, and each member's range in it by extension.
Fields = dict[str, tuple[int, int]]


class TarFormat:
    """Plain tar; nothing has to be decoded to reach a block, so `unit` is -1."""

    def index(self, store: Store, path: str, size: int, limits: Limits, *, on_truncated: OnTruncated) -> BlockTable:
        """Return the block table; samples whose members are interleaved lie in one block.

        A shard that ends inside a sample raises DataError, or with `skip` gives the samples before it.
        """
        grouper = Grouper()
        starts, ends, payload = array("q"), array("q"), array("q")
        cut: int | None = None
        for begin, key, extension, data, length in walk_in_parts(store, path, size):
            end = data + length
            if end > size:
                cut = begin
                if key == b"":
                    # Whose member this was is unknown: the sample before it may not be whole.
                    if ends:
                        ends[-1] = size
                    break
            if key is None:
                continue
            number = grouper.place(key, extension)
            end = min((end + 511) & -512, size)
            if number == len(starts):
                starts.append(begin)
                ends.append(end)
                payload.append(length)
            else:
                ends[number] = end
                payload[number] += length
        if cut is not None and on_truncated == "raise":
            raise DataError(
                f"{path}: cut off at byte {size}, inside the member that begins at byte {cut}; fetch the shard again, "
                "or set on_bad_sample: skip to use the whole samples before"
            )
        return _table(starts, ends, payload, limits, cut=cut, size=size)

    def read(
        self, store: Store, location: Location, samples: Sequence[int], reading: Reading
    ) -> tuple[list[Sample], int]:
        """Return samples with their members' bytes by extension, and the hash of the block's bytes.

        With columns only these members are copied, except where one is missing: then all are there to be named.
        """
        place = (location, store.stat(location.path))
        held = decoded().get(place)
        if held is None:
            raw = store.read(location.path, location.offset, location.size)
            held = (raw, _block_samples(raw, location), xxh3_64_intdigest(raw))
            decoded().put(place, held, len(raw))
        raw, entries, digest = held
        wanted = reading.columns
        result = []
        for number in samples:
            key, members = entries[number]
            ranges = members.items() if wanted is None else _chosen(members, wanted)
            result.append(Sample(key, {name: raw[start:end] for name, (start, end) in ranges}))
        return result, digest

    def stream(self, store: Store, path: str) -> Iterator[Sample]:
        """Yield all samples of a shard, a block at a time."""
        table = self.index(store, path, store.size(path), Limits(64, 1 << 20), on_truncated="raise")
        for offset, size, samples in zip(table.offset, table.size, table.samples, strict=True):
            location = Location(path, "tar", int(offset), int(size), -1, 0, int(samples))
            raw = store.read(path, location.offset, location.size)
            for key, members in _block_samples(raw, location):
                yield Sample(key, {name: raw[start:end] for name, (start, end) in members.items()})


def _chosen(members: Fields, wanted: Sequence[Column]) -> Iterable[tuple[str, tuple[int, int]]]:
    """Return the members that are wanted and there; all, where one is missing."""
    chosen: list[tuple[str, tuple[int, int]]] = []
    for column in wanted:
        had = [(name, members[name]) for name in column_names(column) if name in members]
        if not had:
            return members.items()
        chosen += had
    return chosen


def _block_samples(raw: bytes, location: Location) -> list[tuple[str, Fields]]:
    """Return key and members' ranges of each sample in a block's bytes, by Grouper's rule."""
    base = location.offset
    entries: list[tuple[str, Fields]] = []
    latest: dict[bytes, Fields] = {}
    texts: dict[bytes, str] = {}
    for _, key, extension, data, size in walk(MemoryWindow(raw, base, location.path), base, base + len(raw)):
        if not key:
            continue
        start = data - base
        if start + size > len(raw):
            raise changed(location.path)
        text = texts.get(extension)
        if text is None:
            text = texts[extension] = extension.decode("utf-8", "surrogateescape")
        members = latest.get(key)
        if members is None or text in members:
            latest[key] = members = {}
            entries.append((key.decode("utf-8", "surrogateescape"), members))
        members[text] = (start, start + size)
    if len(entries) != location.samples:
        raise changed(location.path)
    return entries


def _table(
    starts: array[int], ends: array[int], payload: array[int], limits: Limits, *, cut: int | None, size: int
) -> BlockTable:
    """Cut samples into blocks: those whose ranges overlap stay together, and the last ones go if they are cut."""
    cutter = Cutter(limits)
    start = np.array(starts, dtype=np.int64)
    if not len(start):
        return cutter.table(dropped=size if cut is not None else 0)
    reach = np.maximum.accumulate(np.array(ends, dtype=np.int64))
    alone = np.flatnonzero(reach[:-1] <= start[1:]) + 1
    first = np.concatenate(([0], alone))
    last = np.concatenate((alone, [len(start)])) - 1
    held = np.add.reduceat(np.array(payload, dtype=np.int64), first)
    dropped = 0
    if cut is not None:
        # A cut member reaches the end, so that its sample is in the last piece; if it belongs to none, nothing goes.
        whole = len(first) - 1 if reach[-1] == size else len(first)
        first, last, held = first[:whole], last[:whole], held[:whole]
        dropped = size - int(reach[last[-1]]) if whole else size
    cutter.add(start[first], reach[last], last - first + 1, held)
    cutter.close(unit=-1)
    return cutter.table(dropped=dropped)
