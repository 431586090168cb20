"""What the planner handles: references to documents, and the rows planned from them."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec


class Payload:
    """What a document's reference stands for while it is in memory; the planner never looks inside.

    `tokens` is int32 [length] and `mask` uint8 [length] or None; `tokens` is None where the document has to
    be read (again) before its row is made, and `ordered` is true once that is under way. `counted` are the
    bytes that stand in the account of waiting documents.
    """

    __slots__ = ("counted", "mask", "ordered", "tokens")

    def __init__(self, tokens: Any = None, mask: Any = None, counted: int = 0) -> None:
        self.tokens = tokens
        self.mask = mask
        self.counted = counted
        self.ordered = False


class Item(msgspec.Struct, frozen=True, gc=False):
    """A document, or what is left of it, as the planner sees it: a reference, a length and metadata.

    `source`, `q`, `sample`, `part` are the reference: source name, global block ordinal, the sample's
    number in its block, and the document's number in its sample. `start` is the first token not yet
    planned and `length` the document's tokens (after `long: truncate`). `meta` are the source's
    declared integers. `block_hash` is the XXH3-64 of the block's raw bytes; it decides nothing and
    lets a resume notice data that changed. `payload` is no part of the reference.
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

    def at(self, start: int) -> Item:
        """Return what is left of the item from token `start` on."""
        return Item(
            self.source, self.q, self.sample, self.part, start, self.length, self.meta, self.block_hash, self.payload
        )


class Span(NamedTuple):
    """Tokens [start, stop) of an item's document, placed at `offset` in a row."""

    item: Item
    start: int
    stop: int
    offset: int


class Row(NamedTuple):
    """A planned sequence: its spans in increasing offset."""

    spans: tuple[Span, ...]
