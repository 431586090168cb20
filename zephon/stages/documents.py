"""A batch of documents, columnar, and how it is put together from encoded texts and single tokens."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from zephon.errors import DataError
from zephon.tokenizer import LoadedTokenizer


class Documents(msgspec.Struct):
    """The documents of N samples; the same columns as Page, which see.

    tokens   uint32 [T]
    offsets  int64 [D + 1]
    counts   int32 [N]
    mask     uint8 [T], or None: whether there is one depends on the stage's settings alone
    meta     int64 [D, M], or None: M = 0
    bad      (i, message), in increasing i
    attachments int64 [A, 11], or None: A = 0
    """

    tokens: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    counts: NDArray[np.int32]
    mask: NDArray[np.uint8] | None
    meta: NDArray[np.int64] | None
    bad: tuple[tuple[int, str], ...]
    attachments: NDArray[np.int64] | None = None


class Draft(msgspec.Struct):
    """Documents before tokenizing: D documents of P pieces in order; a piece is a text or one token.

    texts    the pieces that are text, in order
    pieces   int64 [P]      -1: the next text; else a token's id
    starts   int64 [D + 1]  first piece of each document
    owners   int64 [D]      the document's sample
    flags    uint8 [P]      1 where the piece's tokens are to be predicted; None: no mask
    """

    texts: Sequence[str]
    pieces: NDArray[np.int64]
    starts: NDArray[np.int64]
    owners: NDArray[np.int64]
    flags: NDArray[np.uint8] | None = None


def write_documents(draft: Draft, tokenizer: LoadedTokenizer, *, num_samples: int, bad: dict[int, str]) -> Documents:
    """Return a draft's documents, with all texts encoded in one call and no work per token in Python.

    A document whose texts give no token is left out, whatever single tokens it has. A text that can't be
    encoded makes its sample bad, which is then added to `bad`.
    """
    failed: dict[int, str] = {}
    tokens, offsets = encode_texts(draft.texts, tokenizer, failed)
    if failed:
        owners = np.repeat(draft.owners, np.diff(draft.starts))[draft.pieces < 0].tolist()
        bad |= {owners[number]: message for number, message in failed.items()}
    is_text = draft.pieces < 0
    lengths = np.ones(len(draft.pieces), dtype=np.int64)
    lengths[is_text] = np.diff(offsets)

    text_tokens = np.zeros(len(draft.pieces) + 1, dtype=np.int64)
    np.cumsum(np.where(is_text, lengths, 0), out=text_tokens[1:])
    keep = np.diff(text_tokens[draft.starts]) > 0
    if bad:
        keep &= ~np.isin(draft.owners, np.fromiter(bad, dtype=np.int64, count=len(bad)))
    kept = np.repeat(keep, np.diff(draft.starts))
    tokens = tokens[np.repeat(kept[is_text], lengths[is_text])] if not keep.all() else tokens
    lengths[~kept] = 0

    ends = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=ends[1:])
    out = np.empty(int(ends[-1]), dtype=np.uint32)
    single = kept & ~is_text
    from_text = np.ones(len(out), dtype=np.bool_)
    from_text[ends[:-1][single]] = False
    out[from_text] = tokens
    out[ends[:-1][single]] = draft.pieces[single]
    document_ends = ends[draft.starts[1:]][keep]
    return Documents(
        tokens=out,
        offsets=np.concatenate((np.zeros(1, dtype=np.int64), document_ends)),
        counts=np.bincount(draft.owners[keep], minlength=num_samples).astype(np.int32),
        mask=None if draft.flags is None else np.repeat(draft.flags, lengths),
        meta=None,
        bad=tuple(sorted(bad.items())),
    )


def encode_texts(
    texts: Sequence[str], tokenizer: LoadedTokenizer, failed: dict[int, str]
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the texts' tokens, one after another, and their offsets; a text that can't be encoded has none.

    Such a text's number and what is wrong are added to `failed`.
    """
    try:
        return tokenizer.encode_batch(texts)
    except DataError:
        # Find out which, so that the others go on.
        encoded = []
        for number, text in enumerate(texts):
            try:
                encoded.append(tokenizer.encode_batch([text])[0])
            except DataError as error:
                failed[number] = str(error)
                encoded.append(np.empty(0, dtype=np.uint32))
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(tokens) for tokens in encoded], out=offsets[1:])
        return np.concatenate(encoded), offsets
