"""The `function` stage: the documents that a user's own function makes of each sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from zephon.config import Struct
from zephon.errors import ConfigError, DataError, StoreError, ZephonError
from zephon.formats.sample import Sample
from zephon.random import SampleRandom
from zephon.stages.documents import Documents, Draft, write_documents
from zephon.stages.edges import edge_token, need_tokenizer
from zephon.stages.fields import BadSampleError
from zephon.stages.returned import Returned, read_returned
from zephon.stages.stage import SampleRandomOf, Stage
from zephon.stages.tokens import MAX_TOKENS
from zephon.tokenizer import LoadedTokenizer
from zephon.tokenizer.engines import one_line


class FunctionStage(Struct, frozen=True, kw_only=True):
    """The documents that your function makes of a sample: function(fields, rng=…, **options).

    `fields` are the sample's, with its key as `__key__`; `rng` is a zephon.random.SampleRandom keyed by
    the sample: use no other chance, and nothing but the sample. Return None (no document), a string, a
    NumPy array of ids, a Document, or a list of these. What it raises makes the sample bad, except for a
    failure of the machine (MemoryError, an OSError with an errno), which is raised.

    function  module:function, importable by the workers
    version   part of the plan: change it when your code changes what it does
    options   the function's further keyword arguments
    columns   fields that it reads; null: all
    metadata  names of the integers that each document carries
    mask      its documents may have a loss mask
    eos       put tokenizer.eos after each text
    """

    function: str
    version: int | str | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    columns: tuple[str, ...] | None = None
    metadata_names: tuple[str, ...] = msgspec.field(default=(), name="metadata")
    mask: bool = False
    eos: bool = True

    def fields(self) -> tuple[str, ...] | None:
        return self.columns

    def metadata(self) -> tuple[str, ...]:
        return self.metadata_names

    def plan(self) -> dict[str, Any]:
        return {"kind": "function", **msgspec.to_builtins(self)}

    def needs(self) -> tuple[str, ...]:
        # Whether the function returns text shows only when it does.
        return ()

    def build(self, tokenizer: LoadedTokenizer | None, *, place: str) -> Stage:
        function = load_function(self.function, place=f"{place}.function")
        after: tuple[int, ...] = ()
        if tokenizer is not None and self.eos:
            after = (edge_token(tokenizer, "eos", place=place),)
        return _Function(self, function, tokenizer, after=after, place=place)


def load_function(name: str, *, place: str) -> Callable[..., Any]:
    """Return what "module:function" names; raises ConfigError where it can't be imported or called."""
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise ConfigError(f"{place}={name!r} has not the form module:function; write it so")
    try:
        function = getattr(import_module(module), attribute)
    except Exception as error:  # importing runs the user's code
        raise ConfigError(
            f"{place}: can't import {name!r}: {type(error).__name__}: {one_line(error)}; "
            "put its folder on PYTHONPATH, or correct the name"
        ) from error
    if not callable(function):
        raise ConfigError(f"{place}={name!r} is of type {type(function).__name__}, not a function; correct the name")
    result: Callable[..., Any] = function
    return result


class _Function:
    def __init__(
        self,
        config: FunctionStage,
        function: Callable[..., Any],
        tokenizer: LoadedTokenizer | None,
        *,
        after: tuple[int, ...],
        place: str,
    ) -> None:
        self._config = config
        self._function = function
        self._tokenizer = tokenizer
        self._after = after
        self._place = place
        self._limit = MAX_TOKENS if tokenizer is None else tokenizer.vocab_size

    def documents(self, samples: Sequence[Sample], random: SampleRandomOf) -> Documents:
        bad: dict[int, str] = {}
        made: list[Returned] = []
        owners: list[int] = []
        for number, sample in enumerate(samples):
            try:
                documents = self._call(sample, random(number))
            except BadSampleError as error:
                bad[number] = str(error)
                continue
            made += documents
            owners += [number] * len(documents)
        encoded = self._encode(made, owners, bad)
        tokens: list[NDArray[np.uint32]] = []
        masks: list[NDArray[np.uint8]] = []
        meta: list[tuple[int, ...]] = []
        counts = np.zeros(len(samples), dtype=np.int32)
        for owner, document, text in zip(owners, made, encoded, strict=True):
            ids = text if document.tokens is None else document.tokens
            if owner in bad or not len(ids):
                continue
            tokens.append(ids)
            masks.append(np.ones(len(ids), dtype=np.uint8) if document.mask is None else document.mask)
            meta.append(document.meta)
            counts[owner] += 1
        width = len(self._config.metadata_names)
        return Documents(
            tokens=np.concatenate((*tokens, np.empty(0, dtype=np.uint32))),
            offsets=np.cumsum([0, *map(len, tokens)], dtype=np.int64),
            counts=counts,
            mask=np.concatenate((*masks, np.empty(0, dtype=np.uint8))) if self._config.mask else None,
            meta=np.array(meta, dtype=np.int64).reshape(len(meta), width) if width else None,
            bad=tuple(sorted(bad.items())),
        )

    def _call(self, sample: Sample, rng: SampleRandom) -> list[Returned]:
        if sample.error is not None:
            raise BadSampleError(sample.error)
        config = self._config
        try:
            value = self._function({**sample.fields, "__key__": sample.key}, rng=rng, **config.options)
        except Exception as error:  # whatever the user's code raises
            place = f"{config.function} raised {type(error).__name__}: {one_line(error)}"
            if isinstance(error, ZephonError) and not isinstance(error, DataError):
                raise
            if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None):
                # Not the sample's fault: to skip it would change the order by accident.
                raise StoreError(f"{place} ({self._place}, key {sample.key!r}); mend the machine and resume") from error
            raise BadSampleError(place) from None
        return read_returned(value, metadata=config.metadata_names, masked=config.mask, limit=self._limit)

    def _encode(self, made: list[Returned], owners: list[int], bad: dict[int, str]) -> list[NDArray[np.uint32]]:
        # Here a document counts as a sample of its own, so that its tokens and its failure are found again.
        texts = [number for number, document in enumerate(made) if document.text]
        none = np.empty(0, dtype=np.uint32)
        if not texts:
            return [none] * len(made)
        piece = np.array([-1, *self._after], dtype=np.int64)
        draft = Draft(
            texts=[made[number].text for number in texts],
            pieces=np.tile(piece, len(texts)),
            starts=np.arange(0, (len(texts) + 1) * len(piece), len(piece)),
            owners=np.array(texts, dtype=np.int64),
        )
        failed: dict[int, str] = {}
        tokenizer = need_tokenizer(self._tokenizer, place=self._place)
        documents = write_documents(draft, tokenizer, num_samples=len(made), bad=failed)
        for number, message in sorted(failed.items()):
            bad.setdefault(owners[number], message)
        stops = np.cumsum(documents.counts).tolist()
        offsets = documents.offsets.tolist()
        return [
            documents.tokens[offsets[stop - 1] : offsets[stop]] if count else none
            for stop, count in zip(stops, documents.counts.tolist(), strict=True)
        ]
