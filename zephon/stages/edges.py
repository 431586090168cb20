"""What stages need of the tokenizer: that there is one, and the tokens at a document's edges."""

from __future__ import annotations

from typing import Literal

from zephon.errors import ConfigError
from zephon.tokenizer import LoadedTokenizer


def need_tokenizer(tokenizer: LoadedTokenizer | None, *, place: str) -> LoadedTokenizer:
    """Return the tokenizer; raises ConfigError where there is none."""
    if tokenizer is None:
        raise ConfigError(f"{place} turns text into tokens, but no tokenizer is set; set tokenizer.path")
    return tokenizer


def edge_token(tokenizer: LoadedTokenizer, name: Literal["eos", "bos"], *, place: str) -> int:
    """Return the id of tokenizer.eos or tokenizer.bos; raises ConfigError where it isn't set."""
    token = tokenizer.eos_id if name == "eos" else tokenizer.bos_id
    if token is None:
        raise ConfigError(f"{place}.{name} is true, but tokenizer.{name} isn't set; set it, or {place}.{name}: false")
    return token


def need_joins(tokenizer: LoadedTokenizer, *, place: str, remedy: str) -> None:
    """Raise ConfigError where pieces of a text can't be encoded apart with this tokenizer."""
    if not tokenizer.joins:
        raise ConfigError(
            f"{place} encodes a document's pieces apart, but this tokenizer.json changes each piece's edges "
            f"(a space is put before it, or no decoder is set, say); {remedy}"
        )
