"""A hash of decoded rows that depends on their values and types alone, not on how Arrow lays them out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64


def hash_columns(table: Any) -> int:
    """Return the XXH3-64 of a table's columns, in order.

    Per column: its name; then per array, depth first, the number of values, which of them are null, and
    the values: lengths and bytes of strings and binaries, lengths of lists and then their elements,
    fields of structs, little-endian numbers with nulls as 0. Other types by their text.
    """
    digest = xxh3_64()
    for i, name in enumerate(table.column_names):
        text = name.encode()
        digest.update(len(text).to_bytes(8, "little") + text)
        column = table.column(i)
        _add(digest, column.combine_chunks() if column.num_chunks != 1 else column.chunk(0))
    value: int = digest.intdigest()
    return value


def _add(digest: Any, array: Any) -> None:
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    digest.update(len(array).to_bytes(8, "little"))
    if array.null_count:
        digest.update(np.packbits(array.is_null().to_numpy(zero_copy_only=False)).tobytes())
    if _is_bytes(kind):
        _add_bytes(digest, array)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        lengths = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        digest.update(np.ascontiguousarray(lengths, dtype="<i8"))
        _add(digest, array.flatten())
    elif pa.types.is_struct(kind):
        # flatten() gives fields without their parent's nulls showing through.
        for field in array.flatten():
            _add(digest, field)
    elif pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        numbers = pa.int32() if pa.types.is_date32(kind) or pa.types.is_time32(kind) else pa.int64()
        _add(digest, array.cast(numbers))
    elif pa.types.is_boolean(kind):
        digest.update(np.packbits(array.fill_null(False).to_numpy(zero_copy_only=False)).tobytes())
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        values = array.fill_null(0) if array.null_count else array
        numbers = values.to_numpy(zero_copy_only=False)
        digest.update(np.ascontiguousarray(numbers, dtype=numbers.dtype.newbyteorder("<")))
    else:
        digest.update(repr(array.to_pylist()).encode("utf-8", "surrogatepass"))


def _add_bytes(digest: Any, array: Any) -> None:
    """Add strings or binaries: all lengths as int64, then all bytes."""
    kind = array.type
    small = pa.types.is_string(kind) or pa.types.is_binary(kind)
    if array.null_count or not (small or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)):
        # What a null stands on may be anything, and the other layouts are rare.
        array = array.cast(pa.large_binary()).fill_null(b"")
        small = False
    _, offsets, data = array.buffers()
    if offsets is None or not len(array):
        return
    bounds = np.frombuffer(offsets, dtype="<i4" if small else "<i8")[array.offset : array.offset + len(array) + 1]
    digest.update(np.diff(bounds).astype("<i8"))
    if data is not None:
        digest.update(memoryview(data)[int(bounds[0]) : int(bounds[-1])])


def _is_bytes(kind: Any) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )
