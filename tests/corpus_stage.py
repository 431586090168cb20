"""The function stage of test corpora: a sample's documents as they are written in it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from zephon.stages.document import Document


def documents(fields: dict[str, Any], *, rng: object) -> list[Document]:
    """Return the documents of `docs`: a list of {"tokens", "mask", "group"}, or its JSON."""
    docs = fields["docs"] if "docs" in fields else fields["docs.json"]
    if isinstance(docs, str | bytes):
        docs = json.loads(docs)
    return [
        Document(
            tokens=np.array(doc["tokens"], np.int64),
            mask=None if doc["mask"] is None else np.array(doc["mask"], np.int64),
            metadata={"group": doc["group"]},
        )
        for doc in docs
    ]
