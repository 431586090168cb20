"""From Arrow columns to the values that stages get."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


def plain_table(table: Any) -> Any:
    """Return a table without dictionary-encoded columns, so that equal values look equal however they are stored."""
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            name = field.name
            table = table.set_column(i, name, table.column(i).cast(field.type.value_type))
    return table


def column_values(column: Any) -> list[Any]:
    """Return a column's values: str, bytes, numbers, None; lists of integers as NumPy arrays."""
    kind = column.type
    if _is_list(kind) and pa.types.is_integer(kind.value_type):
        return [value for chunk in column.chunks for value in _integer_lists(chunk)]
    if pa.types.is_temporal(kind) and str(kind).find("[ns") >= 0:
        # Python's own types stop at microseconds.
        column = column.cast(pa.string())
    values: list[Any] = column.to_pylist()
    return values


def _integer_lists(chunk: Any) -> list[Any]:
    flat = chunk.flatten()
    if flat.null_count:
        values: list[Any] = chunk.to_pylist()
        return values
    numbers = flat.to_numpy(zero_copy_only=False)
    result: list[Any] = []
    at = 0
    # flatten() leaves null lists out; their length is null.
    for length in chunk.value_lengths().to_pylist():
        if length is None:
            result.append(None)
        else:
            result.append(numbers[at : at + length])
            at += length
    return result


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))
