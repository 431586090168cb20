"""A function for the `function` stage: see configs/function.yaml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from zephon import Document, SampleRandom

_HEADING = re.compile(r"^(?=#{1,6} )", re.MULTILINE)


def sections(
    fields: Mapping[str, Any], *, rng: SampleRandom, keep: float = 1.0, min_chars: int = 200
) -> list[Document]:
    """Return a document for each section of a Markdown page that has `min_chars`, a share `keep` of them.

    Metadata `group` is 1 for a section with a code block, else 0. Chance comes from `rng` alone, which is
    keyed by the sample, so that a section is kept or not whoever asks, and whenever.
    """
    documents = []
    for text in _HEADING.split(fields["text"]):
        if rng.random() < keep and len(text) >= min_chars:
            documents.append(Document(text=text, metadata={"group": int("```" in text)}))
    return documents
