"""What a user's function may return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from numpy.typing import NDArray


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A document made by a function: either its text or its tokens.

    text      is tokenized, and tokenizer.eos put after it (unless the stage says eos: false)
    tokens    ids, a NumPy array or a list of integers; taken as they are
    mask      for `tokens`, as many values: 1 where the token is to be predicted, else 0; None: all
    metadata  an integer for each name that the stage declares
    """

    text: str | None = None
    tokens: NDArray[Any] | Sequence[int] | None = None
    mask: NDArray[Any] | Sequence[int] | None = None
    metadata: Mapping[str, int] = msgspec.field(default_factory=dict)
