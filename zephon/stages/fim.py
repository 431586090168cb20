"""Fill-in-the-middle: a document's text is cut in three and its middle moved behind the rest."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from zephon.config import Struct
from zephon.random import SampleRandom
from zephon.stages.edges import need_joins
from zephon.tokenizer import LoadedTokenizer

Share = Annotated[float, Meta(ge=0, le=1)]


class Fim(Struct, frozen=True, kw_only=True):
    """Fill-in-the-middle on the level of characters.

    rate      share of documents that are cut
    spm_rate  share of these in the order suffix, prefix, middle; the others: prefix, suffix, middle
    prefix    token before the prefix
    suffix    token before the suffix
    middle    token before the middle
    """

    rate: Share = 0.5
    spm_rate: Share = 0.5
    prefix: str = "<|fim_prefix|>"
    suffix: str = "<|fim_suffix|>"
    middle: str = "<|fim_middle|>"


class FimSplitter:
    """Cuts texts for a tokenizer; raises ConfigError where it lacks a token, or can't encode pieces apart."""

    def __init__(self, config: Fim, tokenizer: LoadedTokenizer, *, place: str) -> None:
        need_joins(tokenizer, place=place, remedy=f"{place}: null")
        self._config = config
        self._prefix = tokenizer.token_id(config.prefix, place=f"{place}.prefix")
        self._suffix = tokenizer.token_id(config.suffix, place=f"{place}.suffix")
        self._middle = tokenizer.token_id(config.middle, place=f"{place}.middle")

    def split(self, text: str, random: SampleRandom) -> tuple[str | int, ...]:
        """Return a document's pieces, texts and tokens: the whole text, or its three parts reordered.

        PSM is PRE prefix SUF suffix MID middle; SPM is PRE SUF suffix MID prefix middle, each part
        encoded apart [Bavarian et al. 2022]. Cuts are two uniform places between characters; a part may
        be empty. A document takes at most four draws, in a fixed order.
        """
        if random.random() >= self._config.rate:
            return (text,)
        spm = random.random() < self._config.spm_rate
        first, second = sorted((random.integers(0, len(text) + 1), random.integers(0, len(text) + 1)))
        prefix, middle, suffix = text[:first], text[first:second], text[second:]
        if spm:
            return (self._prefix, self._suffix, suffix, self._middle, prefix, middle)
        return (self._prefix, prefix, self._suffix, suffix, self._middle, middle)
