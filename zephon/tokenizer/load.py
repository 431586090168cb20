"""Loads a configured tokenizer, with the engine that runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from zephon.config import Tokenizer
from zephon.errors import ConfigError, DataError
from zephon.tokenizer.engines import Encode, Encoded, fastokens_encode, fastokens_engine, hf_encode, hf_engine
from zephon.tokenizer.file import TokenizerFile, read_tokenizer_file, token_id
from zephon.tokenizer.probe import probe_texts

JOINED = ("ab", "cd", " ef", "\n", "gh")


class LoadedTokenizer:
    """Turns texts into ids; may be used by several threads at once.

    eos, bos        the configured tokens; None: not set
    eos_id, bos_id  their ids
    pad_id          id that fills rows
    vocab_size      largest id + 1
    engine          hf | fastokens: what runs; never changes the ids
    joins           texts encoded apart and put together read as the whole text does (no space is put
                    before each); chat masks and fill-in-the-middle need it
    """

    def __init__(
        self, config: Tokenizer, file: TokenizerFile, *, engine: str, encode: Encode, fallback: Encode, joins: bool
    ) -> None:
        self.eos = config.eos
        self.bos = config.bos
        self.eos_id = file.eos_id
        self.bos_id = file.bos_id
        self.pad_id = file.pad_id
        self.vocab_size = file.vocab_size
        self.engine = engine
        self.joins = joins
        # Not the file itself: its bytes are of no more use.
        self._ids = file.ids
        self._path = file.path
        self._encode = encode
        self._fallback = fallback

    def token_id(self, token: str, *, place: str) -> int:
        """Return a token's id; raises ConfigError where the vocabulary doesn't have it."""
        return token_id(self._ids, token, path=self._path, place=place)

    def encode_batch(self, texts: Sequence[str]) -> Encoded:
        """Return the texts' ids, one after another, as uint32 [T], and their offsets as int64 [len(texts) + 1].

        No special token is added. A text that spells an added token ("<|endoftext|>") gives its id: that is
        what Hugging Face's tokenizers do by default. Raises DataError where a text can't be encoded.
        """
        try:
            return self._encode(texts)
        except DataError:
            # An engine's limits (its regular expressions' for one) must not decide what a bad sample is.
            return self._fallback(texts)


def load_tokenizer(config: Tokenizer) -> LoadedTokenizer:
    """Return the configured tokenizer, ready to encode; takes seconds, so share it in a process.

    `auto` takes fastokens if it can be imported, loads the file and gives the reference's ids for the
    texts of probe.py; else hf. Raises ConfigError.
    """
    file = read_tokenizer_file(config)
    reference = hf_engine(file)
    _check_ids(file, reference)
    encode = hf_encode(reference)
    joins = _joins(reference, encode)
    if config.engine != "hf":
        try:
            fast = fastokens_encode(fastokens_engine(file))
            _check_equal(file, fast, encode)
        except ConfigError:
            if config.engine == "fastokens":
                raise
        else:
            return LoadedTokenizer(config, file, engine="fastokens", encode=fast, fallback=encode, joins=joins)
    return LoadedTokenizer(config, file, engine="hf", encode=encode, fallback=encode, joins=joins)


def _check_ids(file: TokenizerFile, reference: Any) -> None:
    # Added tokens are what a loader may number anew; the special ones are among them, or in the model's vocabulary.
    for token in file.added:
        if reference.token_to_id(token) != file.ids[token]:
            raise ConfigError(
                f"{file.path!r} gives the added token {token!r} the id {file.ids[token]}, but Hugging Face's engine "
                f"{reference.token_to_id(token)}; write the file again with tokenizers {_version()}"
            )


def _check_equal(file: TokenizerFile, fast: Encode, encode: Encode) -> None:
    texts = probe_texts(list(file.added))
    try:
        tokens, offsets = fast(texts)
        expected, expected_offsets = encode(texts)
    except DataError as error:
        raise ConfigError(
            f"tokenizer.engine=fastokens can't be tested with {file.path!r}: {error}; set tokenizer.engine: auto"
        ) from error
    for number, text in enumerate(texts):
        mine = tokens[offsets[number] : offsets[number + 1]]
        theirs = expected[expected_offsets[number] : expected_offsets[number + 1]]
        if not np.array_equal(mine, theirs):
            raise ConfigError(
                f"tokenizer.engine=fastokens gives other ids than Hugging Face's engine for {text[:40]!r} with "
                f"{file.path!r}; set tokenizer.engine: auto"
            )


def _joins(reference: Any, encode: Encode) -> bool:
    try:
        tokens, _ = encode(JOINED)
    except DataError:
        # A vocabulary of whole words, say, which knows none of these texts.
        return False
    text: str = reference.decode(tokens.tolist(), skip_special_tokens=False)
    return text == "".join(JOINED)


def _version() -> str:
    from tokenizers import __version__

    return str(__version__)
