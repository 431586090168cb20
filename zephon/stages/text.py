"""The `text` stage: one document for each sample's text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import numpy as np

from zephon.config import Struct
from zephon.formats.sample import Sample
from zephon.stages.documents import Documents, Draft, write_documents
from zephon.stages.edges import edge_token, need_tokenizer
from zephon.stages.fields import read_texts
from zephon.stages.fim import Fim, FimSplitter
from zephon.stages.stage import SampleRandomOf, Stage
from zephon.tokenizer import LoadedTokenizer


class TextStage(Struct, frozen=True, kw_only=True):
    """One document a sample: the text of a field, tokenized. An empty text gives none.

    field   member, field or column that holds the text; bytes are read as UTF-8
    eos     put tokenizer.eos after each document
    bos     put tokenizer.bos before each document
    errors  strict | replace | ignore: what isn't UTF-8 makes the sample bad, becomes U+FFFD, is left out
    fim     fill-in-the-middle {rate, spm_rate, prefix, suffix, middle}; null: none
    """

    field: str = "txt"
    eos: bool = True
    bos: bool = False
    errors: Literal["strict", "replace", "ignore"] = "strict"
    fim: Fim | None = None

    def fields(self) -> tuple[str, ...] | None:
        return (self.field,)

    def metadata(self) -> tuple[str, ...]:
        return ()

    def plan(self) -> dict[str, Any]:
        return {"kind": "text", **msgspec.to_builtins(self)}

    def needs(self) -> tuple[str, ...]:
        return ("path", *("eos",) * self.eos, *("bos",) * self.bos)

    def build(self, tokenizer: LoadedTokenizer | None, *, place: str) -> Stage:
        tokenizer = need_tokenizer(tokenizer, place=place)
        before = (edge_token(tokenizer, "bos", place=place),) if self.bos else ()
        after = (edge_token(tokenizer, "eos", place=place),) if self.eos else ()
        middle = None if self.fim is None else FimSplitter(self.fim, tokenizer, place=f"{place}.fim")
        return _Text(self, tokenizer, before=before, after=after, fim=middle, place=place)


class _Text:
    def __init__(
        self,
        config: TextStage,
        tokenizer: LoadedTokenizer,
        *,
        before: tuple[int, ...],
        after: tuple[int, ...],
        fim: FimSplitter | None,
        place: str,
    ) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._before = before
        self._after = after
        self._document = np.array([*before, -1, *after], dtype=np.int64)
        self._fim = fim
        self._place = place

    def documents(self, samples: Sequence[Sample], random: SampleRandomOf) -> Documents:
        config = self._config
        owners, texts, bad = read_texts(samples, field=config.field, errors=config.errors, place=self._place)
        fim = self._fim
        draft = self._whole(owners, texts) if fim is None else self._split(fim, owners, texts, random)
        return write_documents(draft, self._tokenizer, num_samples=len(samples), bad=bad)

    def _whole(self, owners: list[int], texts: list[str]) -> Draft:
        width = len(self._document)
        return Draft(
            texts=texts,
            pieces=np.tile(self._document, len(texts)),
            starts=np.arange(0, (len(texts) + 1) * width, width),
            owners=np.array(owners, dtype=np.int64),
        )

    def _split(self, fim: FimSplitter, owners: list[int], texts: list[str], random: SampleRandomOf) -> Draft:
        parts: list[str] = []
        pieces: list[int] = []
        starts = [0]
        for owner, text in zip(owners, texts, strict=True):
            pieces += self._before
            for piece in fim.split(text, random(owner)):
                if isinstance(piece, str):
                    parts.append(piece)
                    pieces.append(-1)
                else:
                    pieces.append(piece)
            pieces += self._after
            starts.append(len(pieces))
        return Draft(
            texts=parts,
            pieces=np.array(pieces, dtype=np.int64),
            starts=np.array(starts, dtype=np.int64),
            owners=np.array(owners, dtype=np.int64),
        )
