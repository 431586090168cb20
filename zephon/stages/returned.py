"""Checks what a user's function returned, and makes it uniform."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zephon.stages.document import Document
from zephon.stages.fields import BadSampleError, half_pair
from zephon.stages.tokens import check_ids, check_mask, read_array

FORMS = "None, a string, a NumPy array of ids, a zephon Document, or a list of these"


class Returned(NamedTuple):
    """A document as a function returned it: its text (tokens is None) or its tokens (text is "")."""

    text: str
    tokens: NDArray[np.uint32] | None
    mask: NDArray[np.uint8] | None
    meta: tuple[int, ...]


def read_returned(value: Any, *, metadata: tuple[str, ...], masked: bool, limit: int) -> list[Returned]:
    """Return the documents in what a function returned; raises BadSampleError where there is anything else."""
    if value is None:
        return []
    values = value if isinstance(value, list | tuple) else [value]
    return [_read(item, metadata=metadata, masked=masked, limit=limit) for item in values]


def _read(value: Any, *, metadata: tuple[str, ...], masked: bool, limit: int) -> Returned:
    if isinstance(value, str):
        value = Document(text=value)
    elif isinstance(value, np.ndarray):
        value = Document(tokens=value)
    elif not isinstance(value, Document):
        raise BadSampleError(f"the function returned a {type(value).__name__}; it must return {FORMS}")
    meta = _read_metadata(value.metadata, metadata)
    if (value.text is None) == (value.tokens is None):
        raise BadSampleError("the function returned a Document without, or with both of, text and tokens; give one")
    if value.text is not None:
        return _read_text(value, meta)
    tokens = check_ids(read_array(value.tokens, name="tokens", dtype=None), limit=limit, name="tokens")
    if value.mask is None:
        return Returned("", tokens, None, meta)
    if not masked:
        # Whether a row has a mask may not depend on which documents it holds.
        raise BadSampleError("the function returned a mask, but its stage declares none; set the stage's mask: true")
    mask = check_mask(read_array(value.mask, name="mask", dtype=None), length=len(tokens), name="mask")
    return Returned("", tokens, mask, meta)


def _read_text(document: Document, meta: tuple[int, ...]) -> Returned:
    text = document.text
    if not isinstance(text, str):
        raise BadSampleError(f"the function returned a Document whose text is a {type(text).__name__}")
    if document.mask is not None:
        raise BadSampleError("the function returned a Document with a mask for its text; give its tokens instead")
    if half_pair(text) is not None:
        raise BadSampleError("the function returned text with half a surrogate pair, which is no character")
    return Returned(text, None, None, meta)


def _read_metadata(values: Mapping[str, int], names: tuple[str, ...]) -> tuple[int, ...]:
    if not names and not values:
        return ()
    for name in values:
        if name not in names:
            raise BadSampleError(f"the function returned metadata {name!r}; name it in the stage's metadata")
    result = []
    for name in names:
        value = values.get(name)
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
            raise BadSampleError(f"the function returned metadata {name}={value!r}; it must be an integer of 64 bits")
        result.append(int(value))
    return tuple(result)
