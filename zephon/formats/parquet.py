"""Parquet: a row is a sample, a block is rows of one row group, and the row group is the restart unit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from zephon.errors import DataError
from zephon.formats.blocks import LARGE, MEDIUM, BlockTable, Limits, OnTruncated
from zephon.formats.cache import decoded
from zephon.formats.changed import changed
from zephon.formats.parquet_hash import hash_columns
from zephon.formats.parquet_spill import chunk_rows, read_rows, write_rows
from zephon.formats.parquet_values import column_values, plain_table
from zephon.formats.sample import Reading, Sample, column_names
from zephon.formats.units import with_unit
from zephon.page import Location
from zephon.stores.file import StoreFile
from zephon.stores.protocol import Stat, Store

# Bytes of a column chunk that are read at a time where a row group is streamed.
BUFFER_BYTES = 1 << 18


class ParquetFormat:
    """Rows of a Parquet file; `offset` is the first row in its row group, `size` the number of rows."""

    def index(self, store: Store, path: str, size: int, limits: Limits, *, on_truncated: OnTruncated) -> BlockTable:
        """Return the block table from the file's footer alone.

        A row group's bytes are taken to be spread evenly over its rows. A truncated file has no footer:
        DataError.
        """
        with _errors(path):
            metadata = pq.read_metadata(pa.PythonFile(StoreFile(store, path, size), mode="r"))
        parts: list[tuple[Any, Any, int, int, int]] = []
        by_column: list[dict[str, int]] = [{}, {}, {}]
        for unit in range(metadata.num_row_groups):
            group = metadata.row_group(unit)
            rows, num_bytes = group.num_rows, group.total_byte_size
            if not rows:
                continue
            step = min(limits.samples, max(1, limits.bytes * rows // max(1, num_bytes)))
            starts = np.arange(0, rows, step, dtype=np.int64)
            grade = limits.grade(num_blocks=len(starts), num_bytes=num_bytes)
            parts.append((starts, np.append(starts[1:], rows), num_bytes, unit, grade))
            for column in range(group.num_columns):
                chunk = group.column(column)
                name = chunk.path_in_schema.split(".")[0]
                by_column[grade][name] = by_column[grade].get(name, 0) + chunk.total_uncompressed_size
        return _table(parts, by_column)

    def read(
        self, store: Store, location: Location, samples: Sequence[int], reading: Reading
    ) -> tuple[list[Sample], int]:
        """Return rows with the columns asked for (all without), and a hash of these columns' values in the block.

        Which of a column's several names are read is decided by the shard's schema alone.
        """
        stat = store.stat(location.path)
        columns = _columns(store, location.path, stat, reading)
        place = (location, stat, columns)
        rows = _rows(store, location, stat, columns, reading)
        if rows.num_rows != location.samples:
            raise changed(location.path)
        with _errors(location.path):
            # Only the hash is kept: the rows would keep their whole row group in memory.
            digest: int | None = decoded().get(place)
            if digest is None:
                digest = hash_columns(rows)
                decoded().put(place, digest, 256)
            whole = len(samples) == rows.num_rows
            # A whole block's values are cheaper put in order as Python's than as Arrow's.
            chosen = rows if whole else rows.take(pa.array(samples, pa.int64()))
            found = _samples(chosen, location.first, samples if not whole else range(rows.num_rows))
            return [found[i] for i in samples] if whole else found, digest

    def stream(self, store: Store, path: str) -> Iterator[Sample]:
        """Yield all rows, all columns, a few at a time."""
        size = store.size(path)
        with _errors(path):
            file = _open(store, path, size)
            number = 0
            for unit in range(file.num_row_groups):
                for batch in _batches(file, unit, None):
                    yield from _samples(plain_table(batch), number, range(batch.num_rows))
                    number += batch.num_rows


def _table(parts: list[tuple[Any, Any, int, int, int]], by_column: list[dict[str, int]]) -> BlockTable:
    def join(columns: list[Any]) -> Any:
        return np.concatenate([np.zeros(0, dtype=np.int64), *columns])

    rows = join([stops - starts for starts, stops, *_ in parts])
    # Apportioned so that a row group's blocks add up to its bytes exactly.
    payload = [
        num_bytes * int(stop) // int(stops[-1]) - num_bytes * int(start) // int(stops[-1])
        for starts, stops, num_bytes, _, _ in parts
        for start, stop in zip(starts, stops, strict=True)
    ]
    return BlockTable(
        offset=join([starts for starts, *_ in parts]),
        size=rows,
        unit=join([np.full(len(starts), unit, dtype=np.int64) for starts, _, _, unit, _ in parts]),
        samples=rows.copy(),
        payload=np.array(payload, dtype=np.int64),
        grade=join([np.full(len(starts), grade, dtype=np.int64) for starts, *_, grade in parts]).astype(np.uint8),
        medium_bytes=by_column[MEDIUM],
        large_bytes=by_column[LARGE],
    )


def _columns(store: Store, path: str, stat: Stat, reading: Reading) -> tuple[str, ...] | None:
    """Return the columns that are read of a shard, None for all; DataError, listing what is there, where one lacks."""
    if reading.columns is None:
        return None
    place = (path, stat, reading.columns, "columns")
    found: tuple[str, ...] | None = decoded().get(place)
    if found is not None:
        return found
    with _errors(path):
        there = _open(store, path, stat.size).schema_arrow.names
    chosen: list[str] = []
    for column in reading.columns:
        names = column_names(column)
        had = [name for name in names if name in there]
        if not had:
            setting = reading.settings.get(names[0])
            remedy = f"set sources.{reading.source}.stage.{setting}" if setting else f"correct {reading.source}'s stage"
            raise DataError(
                f"{path}: no column {' or '.join(map(repr, names))} (has: {', '.join(map(repr, there))}); {remedy}"
            )
        chosen += had
    found = tuple(dict.fromkeys(chosen))
    decoded().put(place, found, 256)
    return found


def _rows(store: Store, location: Location, stat: Stat, columns: tuple[str, ...] | None, reading: Reading) -> Any:
    """Return a block's rows as a table of plain columns."""
    path, unit = location.path, location.unit
    place = (path, stat, unit, columns)
    # Without a column there is nothing to decode.
    if (location.large or location.medium) and columns != ():

        def write(file: Any) -> None:
            with _errors(path):
                source = _checked(_open(store, path, stat.size), unit, path)
                group = source.metadata.row_group(unit)
                rows = chunk_rows(location, unit_rows=group.num_rows, unit_bytes=group.total_byte_size)
                write_rows(file, _batches(source, unit, columns), columns, rows)

        with _errors(path):
            first, count = location.offset, location.size
            found = with_unit(
                location, stat, reading.columns, write, lambda opened: read_rows(opened, first, count), reading
            )
            if found is not None:
                return found
    group = decoded().get(place)
    if group is None:
        with _errors(path):
            source = _checked(_open(store, path, stat.size), unit, path)
            group = plain_table(
                source.read_row_group(unit, columns=None if columns is None else list(columns), use_threads=False)
            )
            if columns is not None:
                group = group.select(list(columns))
        decoded().put(place, group, group.nbytes)
    if location.offset + location.size > group.num_rows:
        raise changed(path)
    return group.slice(location.offset, location.size)


def _open(store: Store, path: str, size: int) -> Any:
    """Return a pq.ParquetFile over the store; its footer is read once."""
    place = (path, store.stat(path), "footer")
    metadata = decoded().get(place)
    file = pq.ParquetFile(
        pa.PythonFile(StoreFile(store, path, size), mode="r"),
        metadata=metadata,
        buffer_size=BUFFER_BYTES,
        pre_buffer=False,
    )
    if metadata is None:
        decoded().put(place, file.metadata, file.metadata.serialized_size)
    return file


def _checked(file: Any, unit: int, path: str) -> Any:
    if unit >= file.num_row_groups:
        raise changed(path)
    return file


def _batches(file: Any, unit: int, columns: tuple[str, ...] | None) -> Iterator[Any]:
    """Yield a row group's record batches, each of about a megabyte."""
    group = file.metadata.row_group(unit)
    rows = max(1, min(4096, group.num_rows * (1 << 20) // max(1, group.total_byte_size)))
    for batch in file.iter_batches(
        batch_size=rows, row_groups=[unit], columns=None if columns is None else list(columns), use_threads=False
    ):
        yield pa.Table.from_batches([batch])


def _samples(rows: Any, first: int, numbers: Sequence[int]) -> list[Sample]:
    names = rows.column_names
    # The number alone: a stage may use the key, and where a shard lies or what it is called decides nothing.
    keys = [str(first + number) for number in numbers]
    columns = [column_values(rows.column(i)) for i in range(len(names))]
    if not columns:
        return [Sample(key, {}) for key in keys]
    return [
        Sample(key, dict(zip(names, values, strict=True)))
        for key, values in zip(keys, zip(*columns, strict=True), strict=True)
    ]


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Turn what Arrow says about a damaged file into a DataError that names it."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the operating system's, about the spill, not Arrow's about the data
        why = " ".join(str(error).split())
        raise DataError(
            f"{path}: damaged Parquet ({why}); fetch the shard again, or leave it out of the source"
        ) from error
