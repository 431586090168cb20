"""The `tokens` stage: documents that are token ids already."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from zephon.config import Struct
from zephon.formats.sample import Sample
from zephon.stages.documents import Documents
from zephon.stages.edges import edge_token, need_tokenizer
from zephon.stages.fields import BadSampleError, read_field
from zephon.stages.npy import read_npy
from zephon.stages.stage import SampleRandomOf, Stage
from zephon.tokenizer import LoadedTokenizer

MAX_TOKENS = 1 << 31


class TokensStage(Struct, frozen=True, kw_only=True):
    """One document a sample: the token ids of a field. No ids give no document.

    field       member, field or column: an .npy file, raw binary, or a list of integers
    dtype       type of raw binary, little-endian; null: bytes are an .npy file
    mask_field  the same for the loss mask: 1 where the token is to be predicted, else 0; raw
                binary has a byte a token; null: no mask
    eos         put tokenizer.eos after each document, to be predicted
    """

    field: str = "tokens.npy"
    dtype: Literal["uint8", "uint16", "int16", "uint32", "int32", "uint64", "int64"] | None = None
    mask_field: str | None = None
    eos: bool = False

    def fields(self) -> tuple[str, ...] | None:
        return (self.field,) if self.mask_field is None else (self.field, self.mask_field)

    def metadata(self) -> tuple[str, ...]:
        return ()

    def plan(self) -> dict[str, Any]:
        return {"kind": "tokens", **msgspec.to_builtins(self)}

    def needs(self) -> tuple[str, ...]:
        return ("path", "eos") if self.eos else ()

    def build(self, tokenizer: LoadedTokenizer | None, *, place: str) -> Stage:
        after: tuple[int, ...] = ()
        if self.eos:
            after = (edge_token(need_tokenizer(tokenizer, place=place), "eos", place=place),)
        return _Tokens(self, limit=MAX_TOKENS if tokenizer is None else tokenizer.vocab_size, after=after, place=place)


class _Tokens:
    def __init__(self, config: TokensStage, *, limit: int, after: tuple[int, ...], place: str) -> None:
        self._config = config
        self._limit = limit
        self._after = np.array(after, dtype=np.uint32)
        self._place = place

    def documents(self, samples: Sequence[Sample], random: SampleRandomOf) -> Documents:
        tokens: list[NDArray[np.uint32]] = []
        masks: list[NDArray[np.uint8]] = []
        counts = np.zeros(len(samples), dtype=np.int32)
        bad: dict[int, str] = {}
        for number, sample in enumerate(samples):
            try:
                ids, mask = self._read(sample)
            except BadSampleError as error:
                bad[number] = str(error)
                continue
            if len(ids):
                tokens.append(np.concatenate((ids, self._after)))
                masks.append(np.concatenate((mask, np.ones_like(self._after, dtype=np.uint8))))
                counts[number] = 1
        masked = self._config.mask_field is not None
        return Documents(
            tokens=np.concatenate((*tokens, np.empty(0, dtype=np.uint32))),
            offsets=np.cumsum([0, *map(len, tokens)], dtype=np.int64),
            counts=counts,
            mask=np.concatenate((*masks, np.empty(0, dtype=np.uint8))) if masked else None,
            meta=None,
            bad=tuple(bad.items()),
        )

    def _read(self, sample: Sample) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
        config = self._config
        place = f"{self._place}.field"
        raw = read_array(read_field(sample, config.field, place=place), name=config.field, dtype=config.dtype)
        ids = check_ids(raw, limit=self._limit, name=config.field)
        if config.mask_field is None:
            return ids, np.empty(0, dtype=np.uint8)
        place = f"{self._place}.mask_field"
        dtype = None if config.dtype is None else "uint8"
        mask = read_array(read_field(sample, config.mask_field, place=place), name=config.mask_field, dtype=dtype)
        return ids, check_mask(mask, length=len(ids), name=config.mask_field)


def read_array(value: Any, *, name: str, dtype: str | None) -> NDArray[Any]:
    """Return a field's integers, or booleans, as a one-dimensional array; raises BadSampleError."""
    try:
        if not isinstance(value, bytes):
            if not isinstance(value, list | tuple | np.ndarray):
                raise BadSampleError(f"{name!r} is of type {type(value).__name__}, not a list of integers")
            array = np.asarray(value) if len(value) else np.empty(0, dtype=np.int64)
        elif dtype is None:
            array = read_npy(value)
        else:
            array = np.frombuffer(value, np.dtype(dtype).newbyteorder("<"))
    except (ValueError, OverflowError) as error:
        kind = "an .npy file (set the stage's dtype for raw binary)" if dtype is None else f"an array of {dtype}"
        reason = " ".join(str(error).split())[:200]
        raise BadSampleError(
            f"{name!r} isn't {kind if isinstance(value, bytes) else 'a list of integers'}: {reason}"
        ) from None
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in "iub":
        shape = getattr(array, "shape", "?")
        raise BadSampleError(f"{name!r} is {getattr(array, 'dtype', '?')} of shape {shape}, not a row of integers")
    return array


def check_ids(array: NDArray[Any], *, limit: int, name: str) -> NDArray[np.uint32]:
    """Return token ids as uint32; raises BadSampleError where one is outside [0, limit)."""
    if array.dtype.kind == "b":
        raise BadSampleError(f"{name!r} holds booleans, not token ids")
    if len(array):
        low, high = int(array.min()), int(array.max())
        if low < 0 or high >= limit:
            wrong = low if low < 0 else high
            raise BadSampleError(
                f"{name!r} has the id {wrong}, outside 0..{limit - 1}; set the tokenizer that made them"
            )
    return array.astype(np.uint32)


def check_mask(array: NDArray[Any], *, length: int, name: str) -> NDArray[np.uint8]:
    """Return a loss mask as uint8; raises BadSampleError where its length or a value is wrong."""
    if len(array) != length:
        raise BadSampleError(f"{name!r} has {len(array)} values for {length} tokens")
    if array.dtype.kind != "b" and len(array) and (int(array.min()) < 0 or int(array.max()) > 1):
        raise BadSampleError(f"{name!r} has values other than 0 and 1")
    return array.astype(np.uint8)
