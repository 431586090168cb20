"""What the planner handles: references to documents, and the rows planned from them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec


class Payload:
    """Tokens in memory that references stand for; the planner never looks inside.

    `tokens` is int32 [T] and `mask` uint8 [T] or None, of one document or of a whole page. `tokens` is None where
    a document has to be read (again) before its row is made, and `ordered` is true once that is under way.
    `attachments` are Page's, their places counted in `tokens`; None: none. `account` is told the bytes when the
    last reference to them is gone.
    """

    __slots__ = ("_account", "_num_bytes", "attachments", "mask", "ordered", "tokens")

    def __init__(self, tokens: Any = None, mask: Any = None, account: Callable[[int], None] | None = None) -> None:
        self.tokens = tokens
        self.mask = mask
        self.attachments: Any = None
        self.ordered = False
        self._account = account
        self._num_bytes = 0 if account is None else tokens.nbytes + (0 if mask is None else mask.nbytes)

    def __del__(self) -> None:
        if self._account is not None:
            self._account(self._num_bytes)


class Item(msgspec.Struct, frozen=True, gc=False):
    """A document, or what is left of it, as the planner sees it: a reference, a length and metadata.

    `source`, `q`, `sample`, `part` are the reference: source name, global block ordinal, the sample's
    number in its block, and the document's number in its sample. `start` is the first token not yet
    planned and `length` the document's tokens (after `long: truncate`). `meta` are the source's
    declared integers. `block_hash` is the XXH3-64 of the block's raw bytes; it decides nothing and
    lets a resume notice data that changed. `payload` is no part of the reference; the document's first
    token is its token number `place`.
    """

    source: str
    q: int
    sample: int
    part: int
    start: int
    length: int
    meta: tuple[int, ...] = ()
    block_hash: int = 0
    payload: Payload | None = None
    place: int = 0

    def at(self, start: int) -> Item:
        """Return what is left of the item from token `start` on."""
        return Item(
            self.source,
            self.q,
            self.sample,
            self.part,
            start,
            self.length,
            self.meta,
            self.block_hash,
            self.payload,
            self.place,
        )


class Span(NamedTuple):
    """Tokens [start, stop) of an item's document, placed at `offset` in a row."""

    item: Item
    start: int
    stop: int
    offset: int


# A NamedTuple's own constructor costs thrice as much, and spans are made for every document.
make_span: Callable[[tuple[Item, int, int, int]], Span] = partial(tuple.__new__, Span)


class Row(NamedTuple):
    """A planned sequence: its spans in increasing offset."""

    spans: tuple[Span, ...]
