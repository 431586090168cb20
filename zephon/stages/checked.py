"""What stages give, checked once: the planner and the compiled parts rest on it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zephon.errors import DataError
from zephon.page import COLUMNS
from zephon.stages.documents import Documents


def checked(documents: Documents, *, num_samples: int, place: str) -> Documents:
    """Return the documents in Page's dtypes and C order, without a copy where they have them.

    Raises DataError, naming the stage by `place`, where columns aren't integers of Page's shapes or contradict each
    other, or a document has no tokens.
    """

    def integers(name: str, value: Any, dtype: Any, *, width: int | None = None) -> NDArray[Any]:
        array = np.asarray(value)
        if array.dtype.kind not in "iub" or array.ndim != (1 if width is None else 2):
            raise DataError(f"{place} gave {name} of {array.dtype} {array.shape}; give integers as Page says")
        if array.dtype != dtype and array.size and not _fit(array, np.dtype(dtype)):
            raise DataError(f"{place} gave {name} that don't fit {np.dtype(dtype)}; correct the stage")
        return np.ascontiguousarray(array, dtype)

    def refuse(why: str) -> DataError:
        return DataError(f"{place} gave {why}; correct the stage")

    counts = integers("counts", documents.counts, np.int32)
    if len(counts) != num_samples:
        raise refuse(f"counts for {len(counts)} samples of {num_samples}")
    tokens, offsets = integers("tokens", documents.tokens, np.uint32), integers("offsets", documents.offsets, np.int64)
    number = int(counts.sum(dtype=np.int64))
    if (counts < 0).any() or len(offsets) != number + 1:
        raise refuse(f"{len(offsets)} offsets for {number} documents")
    lengths = np.diff(offsets)
    if offsets[0] or offsets[-1] != len(tokens) or (lengths < 0).any():
        raise refuse(f"offsets from {offsets[0]} to {offsets[-1]} for {len(tokens)} tokens")
    if not lengths.all():
        raise refuse("a document without tokens (a sample may have no document, or several)")
    mask, meta, attachments = documents.mask, documents.meta, documents.attachments
    if mask is not None:
        mask = integers("mask", mask, np.uint8)
        if len(mask) != len(tokens):
            raise refuse(f"a mask of {len(mask)} for {len(tokens)} tokens")
    if meta is not None:
        meta = integers("meta", meta, np.int64, width=0)
        if len(meta) != number:
            raise refuse(f"meta of {len(meta)} for {number} documents")
    if attachments is not None:
        attachments = integers("attachments", attachments, np.int64, width=COLUMNS)
        if attachments.shape[1] != COLUMNS:
            raise refuse(f"attachments of {attachments.shape[1]} columns, not {COLUMNS}")
    return Documents(tokens, offsets, counts, mask, meta, documents.bad, attachments)


def _fit(array: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    limits = np.iinfo(dtype)
    return int(array.min()) >= limits.min and int(array.max()) <= limits.max
