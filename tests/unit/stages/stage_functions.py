"""Functions as a user may write them, named by the function stage's tests."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any

import numpy as np

from zephon.errors import StoreError
from zephon.random import SampleRandom
from zephon.stages.document import Document

NOT_A_FUNCTION = 3


def text(fields: Mapping[str, Any], *, rng: SampleRandom) -> str:
    return fields["txt"]


def give(fields: Mapping[str, Any], *, rng: SampleRandom) -> Any:
    return fields["give"]


def words(fields: Mapping[str, Any], *, rng: SampleRandom, minimum: int = 0) -> list[str]:
    return [word for word in fields["txt"].split() if len(word) >= minimum]


def shuffled(fields: Mapping[str, Any], *, rng: SampleRandom) -> str:
    return " ".join(rng.shuffle(fields["txt"].split()))


def key_and_names(fields: Mapping[str, Any], *, rng: SampleRandom) -> str:
    return ",".join(sorted(fields)) + ":" + fields["__key__"]


def grouped(fields: Mapping[str, Any], *, rng: SampleRandom) -> list[Document]:
    return [
        Document(text="even", metadata={"group": 0, "cost": 5}),
        Document(tokens=np.array([1, 2, 3]), mask=[0, 1, 0], metadata={"cost": np.int32(7), "group": -1}),
        Document(text="", metadata={"group": 9, "cost": 9}),
    ]


def fails(fields: Mapping[str, Any], *, rng: SampleRandom) -> str:
    if fields["txt"] == "value":
        raise ValueError("two\nlines")
    if fields["txt"] == "image":
        raise OSError("image file is truncated")
    if fields["txt"] == "disk":
        raise OSError(errno.EIO, "Input/output error")
    if fields["txt"] == "memory":
        raise MemoryError
    if fields["txt"] == "store":
        raise StoreError("the side file is gone")
    return fields["txt"]
