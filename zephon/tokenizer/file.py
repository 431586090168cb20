"""Reads a tokenizer.json: its hash, its vocabulary and the ids of its special tokens."""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from zephon.config import Tokenizer
from zephon.errors import ConfigError


class TokenizerFile(msgspec.Struct, frozen=True):
    """What a tokenizer.json says about ids.

    path         the file itself, also where the configuration names its folder
    raw          its bytes
    hash         their BLAKE2b-256, in hex
    eos_id       id of tokenizer.eos; None: not set
    bos_id       id of tokenizer.bos; None: not set
    pad_id       id of tokenizer.pad, else eos_id, else 0
    ids          id of every token, added ones included
    added        the added tokens, in the file's order
    vocab_size   largest id + 1
    """

    path: str
    raw: bytes
    hash: str
    eos_id: int | None
    bos_id: int | None
    pad_id: int
    ids: dict[str, int]
    added: tuple[str, ...]
    vocab_size: int


class _Model(msgspec.Struct):
    # A mapping for BPE, WordPiece and WordLevel; a list of [token, score] for Unigram.
    vocab: dict[str, int] | list[tuple[str, float]]
    dropout: float | None = None


class _AddedToken(msgspec.Struct):
    id: int
    content: str


class _Json(msgspec.Struct):
    model: _Model
    added_tokens: list[_AddedToken] = []


def read_tokenizer_file(config: Tokenizer) -> TokenizerFile:
    """Return what a configured tokenizer.json holds, in about 0.3 s for 128,000 tokens.

    Raises ConfigError where the file can't be read, isn't a tokenizer.json, makes ids by chance (BPE
    dropout), or lacks a configured token.
    """
    path = Path(config.path)
    if path.is_dir():
        path = path / "tokenizer.json"
    try:
        raw = path.read_bytes()
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(
            f"can't read the tokenizer {str(path)!r} ({reason}); set tokenizer.path to a tokenizer.json or its folder"
        ) from error
    try:
        json = msgspec.json.decode(raw, type=_Json)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{str(path)!r} is no tokenizer.json of Hugging Face tokenizers: {error}; set tokenizer.path"
        ) from error
    if json.model.dropout:
        raise ConfigError(
            f"{str(path)!r} has model.dropout={json.model.dropout}, which makes ids by chance; set it to null there"
        )
    ids = _ids(json)
    if not ids:
        raise ConfigError(f"{str(path)!r} has an empty vocabulary; set tokenizer.path to a complete tokenizer.json")
    special = {
        name: None if token is None else token_id(ids, token, path=str(path), place=f"tokenizer.{name}")
        for name, token in (("eos", config.eos), ("bos", config.bos), ("pad", config.pad))
    }
    pad_id = special["pad"] if special["pad"] is not None else special["eos"]
    return TokenizerFile(
        path=str(path),
        raw=raw,
        hash=blake2b(raw, digest_size=32).hexdigest(),
        eos_id=special["eos"],
        bos_id=special["bos"],
        pad_id=0 if pad_id is None else pad_id,
        ids=ids,
        added=tuple(token.content for token in json.added_tokens),
        vocab_size=max(ids.values()) + 1,
    )


def tokenizer_plan(config: Tokenizer) -> dict[str, Any]:
    """Return the plain values that fix the ids: the file's hash and the special ids; never path or engine."""
    file = read_tokenizer_file(config)
    return {"hash": file.hash, "eos": file.eos_id, "bos": file.bos_id, "pad": file.pad_id}


def token_id(ids: dict[str, int], token: str, *, path: str, place: str) -> int:
    """Return a token's id; raises ConfigError where the vocabulary doesn't have it."""
    try:
        return ids[token]
    except KeyError:
        near = [known for known in ids if known.strip("<|>_/▁ ").lower() == token.strip("<|>_/▁ ").lower()][:4]
        hint = f"; similar: {', '.join(map(repr, near))}" if near else ""
        raise ConfigError(
            f"{place}={token!r} is no token of {path!r}{hint}; set {place} to one of its tokens"
        ) from None


def _ids(json: _Json) -> dict[str, int]:
    vocab = json.model.vocab
    ids = dict(vocab) if isinstance(vocab, dict) else {token: index for index, (token, _) in enumerate(vocab)}
    for token in json.added_tokens:
        # A token that the model has too keeps the model's id: so does Hugging Face's loader.
        ids.setdefault(token.content, token.id)
    return ids
