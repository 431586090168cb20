"""A row group in the spill: chunks of equal numbers of rows, found by division, each an Arrow stream by itself.

The unit is the chunks, then where each begins and the last ends, then the rows of a chunk and the number of
chunks: int64, little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from zephon.formats.parquet_values import plain_table
from zephon.formats.unit_file import Unit
from zephon.page import Location

# A chunk isn't smaller without need: each has its schema.
CHUNK_BYTES = 1 << 16
LAST_ROWS = 64
_TAIL = struct.Struct("<qq")


def chunk_rows(location: Location, *, unit_rows: int, unit_bytes: int) -> int:
    """Return how many rows a chunk should have, so that a block is a chunk or part of one.

    Only a guess where the block asked for is its unit's last, and so may be shorter than the others.
    """
    last = location.offset + location.size >= unit_rows
    rows = min(LAST_ROWS, unit_rows) if last and location.offset else location.size
    return max(1, rows * max(1, CHUNK_BYTES * unit_rows // max(1, unit_bytes * rows)))


def write_rows(file: Any, tables: Iterable[Any], columns: tuple[str, ...] | None, rows: int) -> None:
    """Write tables, one after another, in chunks of `rows` rows; only the last may have fewer."""
    offsets = [0]
    for batch in _equal_batches(tables, columns, rows):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        offsets.append(offsets[-1] + file.write(sink.getvalue()))
    file.write(np.array(offsets, dtype="<i8").tobytes() + _TAIL.pack(rows, len(offsets) - 1))


def read_rows(unit: Unit, first: int, count: int) -> Any:
    """Return rows [first, first + count), fewer at the end, as a table in memory of its own."""
    rows, num_chunks = _TAIL.unpack(unit.read(unit.num_bytes - _TAIL.size, _TAIL.size))
    start = min(first // rows, max(0, num_chunks - 1))
    stop = max(start, min((first + count - 1) // rows + 1, num_chunks))
    table_at = unit.num_bytes - _TAIL.size - 8 * (num_chunks + 1)
    bounds = np.frombuffer(unit.read(table_at + 8 * start, 8 * (stop - start + 1)), dtype="<i8").tolist()
    raw = pa.py_buffer(unit.read(bounds[0], bounds[-1] - bounds[0]))
    parts = [
        pa.ipc.open_stream(raw.slice(begin - bounds[0], end - begin)).read_all() for begin, end in pairwise(bounds)
    ]
    table = parts[0] if len(parts) == 1 else pa.concat_tables(parts) if parts else pa.table({})
    # Arrow ends the process where a slice begins beyond the end.
    return table.slice(min(first - start * rows, table.num_rows), count)


def _equal_batches(tables: Iterable[Any], columns: tuple[str, ...] | None, rows: int) -> Iterator[Any]:
    waiting: list[Any] = []
    count = 0
    for table in tables:
        part = plain_table(table if columns is None else table.select(list(columns)))
        waiting.append(part)
        count += part.num_rows
        if count < rows:
            continue
        joined = pa.concat_tables(waiting)
        whole = count - count % rows
        for start in range(0, whole, rows):
            yield _batch(joined.slice(start, rows))
        waiting = [joined.slice(whole)]
        count -= whole
    if count:
        yield _batch(pa.concat_tables(waiting))


def _batch(table: Any) -> Any:
    columns = [
        column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks) for column in table.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)
