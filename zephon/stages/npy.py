"""Arrays in the .npy format: NumPy's numpy.lib.format, versions 1.0 to 3.0.

NumPy's own reader evaluates the header as Python source, and CPython 3.11 can't do that while another thread does:
where garbage is collected meanwhile, a healthy file raises SystemError ("AST constructor recursion depth mismatch").
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAGIC = b"\x93NUMPY"
DESCR = re.compile(r"'descr'\s*:\s*'([<>|=]?[a-zA-Z]\d*)'")
FORTRAN = re.compile(r"'fortran_order'\s*:\s*(True|False)")
SHAPE = re.compile(r"'shape'\s*:\s*\(([\d\s,]*)\)")


def read_npy(data: bytes) -> NDArray[Any]:
    """Return the array of an .npy file, read-only, over the file's bytes.

    Plain dtypes only (no objects, no fields). Raises ValueError for anything else, and for too few bytes.
    """
    if data[:6] != MAGIC:
        raise ValueError(f"it begins with {data[:6]!r}, not with {MAGIC!r}")
    wide = 4 if len(data) > 6 and data[6] >= 2 else 2
    first = 8 + wide
    start = first + int.from_bytes(data[8:first], "little")
    if len(data) < max(start, first):
        raise ValueError(f"its {len(data)} bytes end within the header")
    header = data[first:start].decode("latin-1")
    descr, fortran, shape = DESCR.search(header), FORTRAN.search(header), SHAPE.search(header)
    if descr is None or fortran is None or shape is None:
        raise ValueError(f"its header isn't one of a plain array: {header.strip()[:100]}")
    try:
        dtype = np.dtype(descr[1])
    except TypeError as error:
        raise ValueError(str(error)) from error
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    sizes = tuple(int(size) for size in shape[1].replace(",", " ").split())
    array = np.frombuffer(data, dtype, count=_count(sizes, dtype, len(data) - start), offset=start)
    return array.reshape(sizes, order="F" if fortran[1] == "True" else "C")


def _count(sizes: tuple[int, ...], dtype: np.dtype[Any], num_bytes: int) -> int:
    """Return how many values an array has, checked against the bytes that are there."""
    count = 1
    for size in sizes:
        count *= size
    if count * dtype.itemsize > num_bytes:
        raise ValueError(f"it has {num_bytes} bytes of data, and {count} x {dtype} need {count * dtype.itemsize}")
    return count
