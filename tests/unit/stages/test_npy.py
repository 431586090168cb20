"""Reading .npy: what NumPy writes comes back, damage is a ValueError, and threads don't disturb each other."""

from __future__ import annotations

import contextlib
import io
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zephon.stages.npy import read_npy


def saved(array: Any, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version=version)
    return file.getvalue()


@given(
    st.sampled_from(["<i4", ">i8", "|u1", "?", "<u2", "<f4"]),
    st.lists(st.integers(0, 3), max_size=3),
    st.sampled_from(["C", "F"]),
    st.sampled_from([(1, 0), (2, 0), (3, 0)]),
)
def test_what_numpy_writes_comes_back(dtype: str, shape: list[int], order: Any, version: tuple[int, int]) -> None:
    count = int(np.prod(shape, dtype=int))
    array = np.arange(count).astype(dtype).reshape(shape, order=order)
    found = read_npy(saved(array, version))
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_headers_of_other_writers() -> None:
    header = b"{'shape':(2,) , 'descr' :'<i2','fortran_order':False}"
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\x05\x00\x06\x00"
    assert read_npy(data).tolist() == [5, 6]


@given(st.data())
def test_damage_is_a_value_error_or_another_array(data: st.DataObject) -> None:
    good = bytearray(saved(np.arange(9, dtype=np.int32)))
    for _ in range(data.draw(st.integers(1, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(good[: data.draw(st.integers(0, len(good)))])
    with contextlib.suppress(ValueError, OverflowError):
        assert isinstance(read_npy(damaged), np.ndarray)


@pytest.mark.parametrize("array", [np.array([print], object), np.zeros(2, [("a", "<i4")])])
def test_objects_and_fields_are_refused(array: Any) -> None:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=array.dtype.hasobject and not array.dtype.fields)
    with pytest.raises(ValueError, match=r"objects|plain array|O"):
        read_npy(file.getvalue())


def test_threads_read_side_by_side() -> None:
    data = saved(np.arange(5, dtype=np.int32))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            sums = list(pool.map(lambda _: int(read_npy(data).sum()), range(4000)))
    finally:
        sys.setswitchinterval(interval)
    assert set(sums) == {10}
