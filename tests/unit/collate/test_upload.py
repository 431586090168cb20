from __future__ import annotations

import numpy as np
import torch

from zephon.collate.upload import fill, places, views

ARRAYS = [
    np.arange(3, dtype=np.int64),
    np.zeros(0, np.int64),
    np.arange(10, dtype=np.int32).reshape(2, 5),
    np.arange(7, dtype=np.uint8).reshape(1, 7),
]


def test_one_buffer_gives_every_array_back() -> None:
    offsets, size = places(ARRAYS)
    buffer = torch.full((size,), 255, dtype=torch.uint8)
    fill(buffer.numpy(), ARRAYS, offsets)
    for array, view in zip(ARRAYS, views(buffer, ARRAYS, offsets), strict=True):
        assert view.numpy().dtype == array.dtype
        assert np.array_equal(view.numpy(), array)


def test_buffer_is_hardly_larger_than_its_arrays() -> None:
    _, size = places(ARRAYS)
    assert size <= sum(array.nbytes for array in ARRAYS) + 16 * len(ARRAYS)
