"""What has to hold for an engine before its ids are used."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np

from zephon.errors import ConfigError, DataError
from zephon.tokenizer.engines import Encode, Encoded, hf_version
from zephon.tokenizer.file import TokenizerFile
from zephon.tokenizer.probe import probe_texts

JOINED = ("ab", "cd", " ef", "\n", "gh")


def check_ids(file: TokenizerFile, reference: Any) -> None:
    """Raise ConfigError where Hugging Face's engine gives an added token another id than the file."""
    # Added tokens are what a loader may number anew; the special ones are among them, or in the model's vocabulary.
    for token in file.vocabulary.added:
        if reference.token_to_id(token) != file.vocabulary.ids[token]:
            raise ConfigError(
                f"{file.path!r} gives the added token {token!r} the id {file.vocabulary.ids[token]}, but Hugging "
                f"Face's engine {reference.token_to_id(token)}; write the file again with tokenizers {hf_version()}"
            )


def check_probe(file: TokenizerFile, fast: Encode, reference: Encode) -> None:
    """Raise ConfigError where fastokens gives other ids than the reference for a text of the probe."""
    texts = probe_texts(list(file.vocabulary.added))
    try:
        different = first_difference(texts, fast(texts), reference(texts))
    except DataError as error:
        raise ConfigError(
            f"tokenizer.engine=fastokens can't be tested with {file.path!r}: {error}; set tokenizer.engine: auto"
        ) from error
    if different is not None:
        raise ConfigError(
            f"tokenizer.engine=fastokens gives other ids than Hugging Face's engine for {different[:40]!r} with "
            f"{file.path!r}; set tokenizer.engine: auto"
        )


def first_difference(texts: Sequence[str], first: Encoded, second: Encoded) -> str | None:
    """Return the first text that was encoded differently; None if none was."""
    if np.array_equal(first[0], second[0]) and np.array_equal(first[1], second[1]):
        return None
    bounds = zip(texts, pairwise(first[1].tolist()), pairwise(second[1].tolist()), strict=True)
    for text, mine, theirs in bounds:
        if not np.array_equal(first[0][slice(*mine)], second[0][slice(*theirs)]):
            return text
    return None


def probe_digest() -> str:
    """Return the digest of the probe's texts: of the fixed ones, and of those around some added tokens."""
    texts = probe_texts([f"<{number}>" for number in range(40)])
    return blake2b("\0\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def joins(reference: Any, encode: Encode) -> bool:
    """Return whether texts encoded apart and put together read as the whole text does."""
    try:
        tokens, _ = encode(JOINED)
    except DataError:
        # A vocabulary of whole words, say, which knows none of these texts.
        return False
    text: str = reference.decode(tokens.tolist(), skip_special_tokens=False)
    return text == "".join(JOINED)
