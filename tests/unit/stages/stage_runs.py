"""How the stages' tests make samples, run a stage and take its documents apart."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from tokenizers import Tokenizer as HfTokenizer

from zephon.formats.sample import Sample
from zephon.random import SampleRandom, sample_random
from zephon.stages import stage_config
from zephon.stages.documents import Documents
from zephon.tokenizer import LoadedTokenizer

PLACE = "sources.web.stage"


def sample(*, key: str = "k", error: str | None = None, **fields: Any) -> Sample:
    return Sample(key=key, fields=fields, error=error)


def random_of(number: int) -> SampleRandom:
    return sample_random(seed=1, source="web", epoch=0, block=0, sample=number)


def run(raw: dict[str, Any], samples: Sequence[Sample], tokenizer: LoadedTokenizer | None) -> Documents:
    documents = stage_config(raw, place=PLACE).build(tokenizer, place=PLACE).documents(samples, random_of)
    check(documents, len(samples))
    return documents


def check(documents: Documents, num_samples: int) -> None:
    """Hold documents against what Page says of its columns."""
    assert documents.tokens.dtype == np.uint32
    assert documents.offsets.dtype == np.int64
    assert documents.counts.dtype == np.int32
    assert documents.counts.shape == (num_samples,)
    assert documents.offsets[0] == 0
    assert documents.offsets[-1] == len(documents.tokens)
    assert (np.diff(documents.offsets) > 0).all()
    assert documents.counts.sum() == len(documents.offsets) - 1
    numbers = [number for number, _ in documents.bad]
    assert numbers == sorted(set(numbers))
    for number, message in documents.bad:
        assert documents.counts[number] == 0
        assert "\n" not in message
    if documents.mask is not None:
        assert documents.mask.dtype == np.uint8
        assert documents.mask.shape == documents.tokens.shape
    if documents.meta is not None:
        assert documents.meta.dtype == np.int64
        assert len(documents.meta) == len(documents.offsets) - 1


def tokens_of(documents: Documents) -> list[list[int]]:
    return [documents.tokens[start:stop].tolist() for start, stop in pairwise(documents.offsets.tolist())]


def masks_of(documents: Documents) -> list[list[int]]:
    assert documents.mask is not None
    return [documents.mask[start:stop].tolist() for start, stop in pairwise(documents.offsets.tolist())]


def encode(tokenizer: LoadedTokenizer, text: str) -> list[int]:
    tokens: list[int] = tokenizer.encode_batch([text])[0].tolist()
    return tokens


def decode(path: str, tokens: Sequence[int]) -> str:
    text: str = HfTokenizer.from_file(path).decode(list(tokens), skip_special_tokens=False)
    return text
