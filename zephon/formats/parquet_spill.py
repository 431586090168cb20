"""A large row group in the spill: an Arrow file of batches of one size, so that rows are found by division."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from zephon.formats.parquet_values import plain_table


def write_rows(file: Any, tables: Iterable[Any], columns: tuple[str, ...] | None) -> None:
    """Write tables, one after another, as batches of equal numbers of rows; only the last may have fewer."""
    writer = None
    for batch in _equal_batches(tables, columns):
        if writer is None:
            writer = pa.ipc.new_file(pa.PythonFile(file, mode="w"), batch.schema)
        writer.write_batch(batch)
    if writer is not None:
        writer.close()


def read_rows(path: str, first: int, count: int) -> Any:
    """Return rows [first, first + count), fewer at the end, as a table over the mapped file."""
    reader = pa.ipc.open_file(pa.memory_map(path))
    step = max(1, reader.get_batch(0).num_rows)
    last = min((first + count - 1) // step, reader.num_record_batches - 1)
    batches = [reader.get_batch(i) for i in range(first // step, last + 1)]
    table = pa.Table.from_batches(batches, reader.schema)
    return table.slice(first % step, count)


def _equal_batches(tables: Iterable[Any], columns: tuple[str, ...] | None) -> Iterator[Any]:
    step = 0
    waiting: list[Any] = []
    rows = 0
    for table in tables:
        part = plain_table(table if columns is None else table.select(list(columns)))
        step = step or part.num_rows
        waiting.append(part)
        rows += part.num_rows
        while rows >= step:
            joined = pa.concat_tables(waiting)
            yield _batch(joined.slice(0, step))
            waiting = [joined.slice(step)]
            rows -= step
    if rows:
        yield _batch(pa.concat_tables(waiting))


def _batch(table: Any) -> Any:
    return pa.RecordBatch.from_arrays(
        [pa.concat_arrays(column.chunks) for column in table.columns], schema=table.schema
    )
