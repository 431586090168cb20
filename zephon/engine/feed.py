"""Pages from a backend, as the documents of open blocks."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from zephon.backends.protocol import Backend
from zephon.engine.appetite import Appetite
from zephon.engine.block_pages import BlockPages, BlockPlace
from zephon.engine.reader import SHARE, PageReader
from zephon.errors import StateError
from zephon.formats.index import SourceIndex
from zephon.item import Item, Payload
from zephon.lanes.spec import LaneSpec, SourceSpec
from zephon.page import PLACE, Order, Page, Wanted

# A page should take no longer to make.
PAGE_S = 0.05
MIN_SAMPLE_S = 1e-9
# One part in so many of the open blocks' samples may be taken before the next block is ordered.
RESERVE = 8
CHANGED = "the data or the tokenizer changed since the state was saved; restore them, or start anew"


class PageFeed:
    """A rank's Feed: orders pages ahead of need and gives their documents, with payloads, to lanes.

    A page's tokens stay in memory as long as a document of it waits. Where pages take more than `limit_bytes`,
    documents come without tokens and are read again when their row is due: slower, in the same order.
    """

    def __init__(
        self,
        spec: LaneSpec,
        indices: Mapping[str, SourceIndex],
        backend: Backend,
        *,
        appetite: Appetite,
        skip_bad: bool,
        limit_bytes: int,
    ) -> None:
        self.backend = backend
        self.long: Literal["split", "truncate", "drop"] = spec.pack.long
        # No document is longer after the `long` policy.
        self.longest = sys.maxsize if self.long == "split" else spec.capacity
        self.skip_bad = skip_bad
        # Documents without tokens: as long as there are none, no row has to be looked through.
        self.num_missing = 0
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
        # What compiled lanes hold; they keep count themselves.
        self.memory: Any = None
        # Payloads may die in any thread, in the middle of anything: they only leave a note.
        self._released: deque[int] = deque()
        # Seconds that making a sample's documents took lately; they size pages and decide nothing else.
        self._sample_s: dict[str, float] = {}
        # And the bytes that they took.
        self._sample_bytes: dict[str, float] = {}
        self._seed = spec.seed
        self._spread = spec.spread
        self._indices = indices
        self._appetite = appetite
        self._sources: dict[str, SourceSpec] = {source.name: source for source in spec.sources}

    def open(self, source: str, q: int, taken: int, block_hash: int, *, ahead: bool) -> PageReader:
        """Return a reader that has ordered the block's next page."""
        place, pages = self._open(source, q, taken, block_hash, ahead=ahead)
        return PageReader(self, place, pages, taken=taken)

    def open_pages(self, source: str, q: int, taken: int, block_hash: int, *, ahead: bool) -> BlockPages:
        """Return an open block's pages, for a compiled lane."""
        return self._open(source, q, taken, block_hash, ahead=ahead)[1]

    def _open(self, source: str, q: int, taken: int, block_hash: int, *, ahead: bool) -> tuple[BlockPlace, BlockPages]:
        epoch, block, order = self._sources[source].place(self._seed, q)
        place = BlockPlace(source, q, epoch, block, self._indices[source].location(block))
        pages = BlockPages(self, place, order, taken=taken, block_hash=block_hash)
        if not ahead:
            # A block that is needed at once comes in a small page first, so that a lane can begin early.
            pages.order_page(min(self.page_samples(source), self._appetite.first_samples))
        elif self._appetite.eager:
            pages.expect()
        return place, pages

    def page_samples(self, source: str) -> int:
        """Return how many samples the next page of a source holds: what memory allows, if that is made in good time.

        Where tokenizing is slow, small pages: else a start spends its time on what is needed much later.
        """
        most, first = self._appetite.page_samples(source), self._appetite.first_samples
        if source not in self._sample_s:
            # What its stage makes of a sample isn't known yet.
            return min(most, first)
        in_memory = max(1, int(self._appetite.page_bytes / self._sample_bytes[source]))
        return min(most, in_memory, max(first, int(PAGE_S / self._sample_s[source])))

    def take(self, ticket: int, source: str) -> Page:
        """Return a page, noting what it took to make."""
        page = self.backend.take(ticket)
        # A backend may not say; a page that costs nothing is as large as memory allows.
        samples = max(1, len(page.counts))
        sample_s = max(page.seconds / samples, MIN_SAMPLE_S)
        self._sample_s[source] = (self._sample_s.get(source, sample_s) + sample_s) / 2
        sample_bytes = max(1, _num_bytes(page)) / samples
        self._sample_bytes[source] = (self._sample_bytes.get(source, sample_bytes) + sample_bytes) / 2
        return page

    def ahead(self, source: str) -> int:
        """Return how many blocks to open before they are needed."""
        return self._appetite.ahead if self._appetite.eager else 0

    def reserve(self, source: str, samples: int) -> int:
        """Return how few samples left of open blocks, which have `samples` in all, make it time to order one more.

        Where a page holds a block, blocks are ordered one by one as samples are taken: lanes that began together
        would order theirs together, and workers would be idle in between. Smaller pages are even by themselves.
        """
        return samples - samples // RESERVE if samples <= self._spread * self.page_samples(source) else 0

    def order_again(self, source: str, q: int, samples: Sequence[int]) -> int:
        """Order some samples of a block for documents whose tokens are not in memory; return the ticket."""
        epoch, block = self._sources[source].block(self._seed, q)
        return self.backend.submit(Order(source, epoch, block, self._indices[source].location(block), tuple(samples)))

    def order_pixels(self, source: str, q: int, wanted: tuple[Wanted, ...]) -> int:
        """Order attachments of some samples of a block for a planned row; return the ticket."""
        epoch, block = self._sources[source].block(self._seed, q)
        samples = tuple(dict.fromkeys(each.sample for each in wanted))
        return self.backend.submit(Order(source, epoch, block, self._indices[source].location(block), samples, wanted))

    def fill(self, ticket: int, items: Sequence[Item]) -> None:
        """Take an `order_again` page and put tokens into the items' payloads.

        Raises StateError where the block's bytes or a document's length aren't what the items say.
        """
        page = self.backend.take(ticket)
        samples = list(dict.fromkeys(item.sample for item in items))
        first = np.concatenate(([0], np.cumsum(page.counts)))
        for item in items:
            where = f"source {item.source}, block {item.q} (global), sample {item.sample}"
            self.check_hash(page, item.block_hash, where)
            place = samples.index(item.sample)
            document = int(first[place]) + item.part
            if document >= first[place + 1]:
                raise StateError(f"{where}: document {item.part} is gone; {CHANGED}")
            start, stop = int(page.offsets[document]), int(page.offsets[document + 1])
            if self.long == "truncate":
                stop = min(stop, start + self.longest)
            if stop - start != item.length:
                raise StateError(
                    f"{where}: a held document has {stop - start} tokens, {item.length} in the state; {CHANGED}"
                )
            if item.payload is not None and item.payload.tokens is None:
                self.num_missing -= 1
                item.payload.tokens = page.tokens[start:stop].view(np.int32).copy()
                item.payload.mask = None if page.mask is None else page.mask[start:stop].copy()
                item.payload.attachments = _within(page, start, stop)

    def check_hash(self, page: Page, block_hash: int, where: str) -> None:
        """Raise StateError where a block isn't the one that a state was made from."""
        if block_hash and page.block_hash != block_hash:
            raise StateError(
                f"{where}: the block's bytes hash to {page.block_hash:016x}, {block_hash:016x} in the state; {CHANGED}"
            )

    def missing(self) -> Payload:
        """Return the payload of a document that has to be read when its row is due."""
        self.num_missing += 1
        return Payload()

    def admits(self, page: Page) -> bool:
        """Return whether there is memory for a page's tokens."""
        while self._released:
            self._held_bytes -= self._released.popleft()
        held = self._held_bytes + (0 if self.memory is None else self.memory.held)
        return held + _num_bytes(page) <= self._limit_bytes

    def payloads(self, page: Page) -> deque[Payload] | None:
        """Return a page's tokens, SHARE documents a payload; None where memory is used up.

        Copies, so that a document that waits long keeps only its neighbours with it.
        """
        if not self.admits(page):
            return None
        self._held_bytes += _num_bytes(page)
        tokens, mask = page.tokens.view(np.int32), page.mask
        cuts = [*page.offsets[:-1:SHARE].tolist(), int(page.offsets[-1])]
        payloads = deque(
            Payload(tokens[a:b].copy(), None if mask is None else mask[a:b].copy(), self._released.append)
            for a, b in pairwise(cuts)
        )
        if page.attachments is not None:
            for payload, (a, b) in zip(payloads, pairwise(cuts), strict=True):
                payload.attachments = _within(page, a, b)
        return payloads


def _num_bytes(page: Page) -> int:
    return page.tokens.nbytes + (0 if page.mask is None else page.mask.nbytes)


def _within(page: Page, start: int, stop: int) -> NDArray[np.int64] | None:
    """Return the attachments of a page's tokens [start, stop), their places counted from `start`; None: it has none."""
    if page.attachments is None:
        return None
    low, high = np.searchsorted(page.attachments[:, PLACE], (start, stop))
    held = page.attachments[low:high].copy()
    held[:, PLACE] -= start
    return held
