"""Loads a configured tokenizer, with the engine that runs it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec

import msgspec

from zephon.config import Tokenizer
from zephon.errors import ConfigError, DataError
from zephon.tokenizer.check import check_ids, check_probe, joins, probe_digest
from zephon.tokenizer.engines import (
    Encode,
    Encoded,
    fastokens_encode,
    fastokens_engine,
    fastokens_version,
    hf_encode,
    hf_engine,
    hf_version,
)
from zephon.tokenizer.file import TokenizerFile, read_tokenizer_file, token_id
from zephon.tokenizer.known import Known, keep


class LoadedTokenizer:
    """Turns texts into ids; may be used by several threads at once.

    eos, bos        the configured tokens; None: not set
    eos_id, bos_id  their ids
    pad_id          id that fills rows
    vocab_size      largest id + 1
    joins           texts encoded apart and put together read as the whole text does (no space is put
                    before each); chat masks and fill-in-the-middle need it
    """

    def __init__(self, config: Tokenizer, file: TokenizerFile, *, encode: Encode, fast: bool, joins: bool) -> None:
        self.eos = config.eos
        self.bos = config.bos
        self.eos_id = file.eos_id
        self.bos_id = file.bos_id
        self.pad_id = file.pad_id
        self.vocab_size = file.vocab_size
        self.joins = joins
        self._file = file
        self._encode = encode
        self._fast = fast

    @property
    def engine(self) -> str:
        """hf | fastokens: what runs; never changes the ids."""
        return "fastokens" if self._fast else "hf"

    def token_id(self, token: str, *, place: str) -> int:
        """Return a token's id; raises ConfigError where the vocabulary doesn't have it."""
        return token_id(self._file.vocabulary.ids, token, path=self._file.path, place=place)

    def encode_batch(self, texts: Sequence[str]) -> Encoded:
        """Return the texts' ids, one after another, as uint32 [T], and their offsets as int64 [len(texts) + 1].

        No special token is added. A text that spells an added token ("<|endoftext|>") gives its id: that is
        what Hugging Face's tokenizers do by default. Raises DataError where a text can't be encoded.
        """
        return self._encode(texts)


def load_tokenizer(config: Tokenizer) -> LoadedTokenizer:
    """Return the configured tokenizer, ready to encode; takes up to seconds, so share it in a process.

    `auto` is fastokens if that can be imported, loads the file and gives the same ids as Hugging Face's engine for
    the texts of probe.py, else that engine; it is one of the two from the first text to the last, so that no clock
    decides which encodes what. fastokens is tested once for a file and a pair of versions. Raises ConfigError.
    """
    file = read_tokenizer_file(config)
    known = file.known
    wanted = config.engine == "fastokens" or (config.engine == "auto" and find_spec("fastokens") is not None)
    if wanted and known is not None and _tested(known):
        encode = _with_reference(fastokens_encode(fastokens_engine(file)), file)
        return LoadedTokenizer(config, file, encode=encode, fast=True, joins=known.joins)
    reference = hf_engine(file)
    encode = hf_encode(reference)
    if known is None or known.tokenizers != hf_version():
        check_ids(file, reference)
        known = Known(
            eos_id=file.eos_id,
            bos_id=file.bos_id,
            pad_id=file.pad_id,
            vocab_size=file.vocab_size,
            tokenizers=hf_version(),
            joins=joins(reference, encode),
        )
        keep(file.hash, config, known)
    found = known

    def load_fast(encode: Encode) -> Encode:
        fast = fastokens_encode(fastokens_engine(file))
        if not _tested(found):
            check_probe(file, fast, encode)
            keep(
                file.hash,
                config,
                msgspec.structs.replace(found, fastokens=fastokens_version(), probe=probe_digest()),
            )
        return _with_reference(fast, file)

    if config.engine == "fastokens":
        return LoadedTokenizer(config, file, encode=load_fast(encode), fast=True, joins=known.joins)
    if wanted:
        try:
            return LoadedTokenizer(config, file, encode=load_fast(encode), fast=True, joins=known.joins)
        except ConfigError:
            # An engine that can't load this file, or is different: the reference does it.
            return LoadedTokenizer(config, file, encode=encode, fast=False, joins=known.joins)
    return LoadedTokenizer(config, file, encode=encode, fast=False, joins=known.joins)


def _tested(known: Known) -> bool:
    """Return whether fastokens, as it is installed, is known to give the reference's ids."""
    found = (known.tokenizers, known.fastokens, known.probe)
    return bool(known.fastokens) and found == (hf_version(), fastokens_version(), probe_digest())


def _with_reference(fast: Encode, file: TokenizerFile) -> Encode:
    """Return `fast`, and for what it can't encode Hugging Face's engine, loaded when first needed."""

    @cache
    def reference() -> Encode:
        return hf_encode(hf_engine(file))

    def encode(texts: Sequence[str]) -> Encoded:
        try:
            return fast(texts)
        except DataError:
            # An engine's limits (its regular expressions' for one) must not decide what a bad sample is.
            return reference()(texts)

    return encode
