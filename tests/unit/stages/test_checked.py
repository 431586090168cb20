"""What a stage of the user's own may give, and what it is told where it gives something else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from zephon.errors import DataError
from zephon.stages.checked import checked
from zephon.stages.documents import Documents


def documents(**changes: Any) -> Documents:
    columns: dict[str, Any] = {
        "tokens": np.arange(5, dtype=np.uint32),
        "offsets": np.array([0, 2, 5]),
        "counts": np.array([2, 0], np.int32),
        "mask": np.ones(5, np.uint8),
        "meta": np.ones((2, 1), np.int64),
        "bad": (),
        "attachments": np.zeros((0, 11), np.int64),
    }
    return Documents(**{**columns, **changes})


def test_what_fits_is_taken_as_it_is() -> None:
    given = documents()
    found = checked(given, num_samples=2, place="s")
    assert all(getattr(found, name) is getattr(given, name) for name in ("tokens", "offsets", "counts", "mask", "meta"))


@pytest.mark.parametrize(
    "changes",
    [
        {"tokens": np.arange(5, dtype=np.int64)},
        {"tokens": np.arange(10, dtype=np.uint32)[::2] // 2},
        {"tokens": [0, 1, 2, 3, 4]},
        {"mask": np.ones(5, bool)},
        {"mask": np.ones(5, np.int64), "counts": np.array([2, 0], np.int64), "offsets": np.array([0, 2, 5], np.int32)},
    ],
    ids=["int64 tokens", "strided tokens", "a list", "a mask of bools", "other widths"],
)
def test_other_integers_are_converted(changes: dict[str, Any]) -> None:
    found = checked(documents(**changes), num_samples=2, place="s")
    assert found.tokens.dtype == np.uint32
    assert found.tokens.flags.c_contiguous
    assert found.tokens.tolist() == [0, 1, 2, 3, 4]
    assert (found.counts.dtype, found.offsets.dtype) == (np.int32, np.int64)
    assert found.mask is not None
    assert found.mask.dtype == np.uint8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offsets": np.array([0, 0, 5])}, "a document without tokens (a sample may have no document, or several)"),
        ({"offsets": np.array([0, 5, 2])}, "offsets from 0 to 2 for 5 tokens"),
        ({"offsets": np.array([0, 9, 5])}, "offsets from 0 to 5 for 5 tokens"),
        ({"offsets": np.array([1, 2, 5])}, "offsets from 1 to 5 for 5 tokens"),
        ({"offsets": np.array([0, 2, 7])}, "offsets from 0 to 7 for 5 tokens"),
        ({"offsets": np.array([0, 5])}, "2 offsets for 2 documents"),
        ({"counts": np.array([3, -1])}, "3 offsets for 2 documents"),
        ({"counts": np.array([2])}, "counts for 1 samples of 2"),
        ({"mask": np.ones(4, np.uint8)}, "a mask of 4 for 5 tokens"),
        ({"meta": np.ones((1, 1), np.int64)}, "meta of 1 for 2 documents"),
        ({"attachments": np.zeros((0, 3), np.int64)}, "attachments of 3 columns, not 11"),
        ({"tokens": np.array([0, 1, -1, 3, 4])}, "tokens that don't fit uint32"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_columns_that_contradict_each_other_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError) as raised:
        checked(documents(**changes), num_samples=2, place="sources.a.stage")
    assert str(raised.value) == f"sources.a.stage gave {message}; correct the stage"


@pytest.mark.parametrize("tokens", [np.ones(5), np.ones((5, 1), np.uint32), np.array(["a"] * 5)], ids=str)
def test_what_isn_t_a_column_of_integers_is_refused(tokens: Any) -> None:
    with pytest.raises(DataError, match=r"^s gave tokens of .*; give integers as Page says$"):
        checked(documents(tokens=tokens), num_samples=2, place="s")
