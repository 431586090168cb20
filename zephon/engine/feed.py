"""Pages from a backend, as the documents of open blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from zephon.backends.protocol import Backend
from zephon.engine.appetite import Appetite
from zephon.errors import DataError, StateError
from zephon.formats.index import SourceIndex
from zephon.item import Item, Payload
from zephon.lanes.spec import LaneSpec, SourceSpec
from zephon.page import Location, Order, Page

Long = Literal["split", "truncate", "drop"]


class PageFeed:
    """A rank's Feed: orders pages ahead of need and gives their documents, with payloads, to lanes.

    `waiting_bytes` counts the payloads that wait in lanes; over `limit_bytes` a document's tokens are not
    kept but read again when its row is due, which costs time and never changes the order.
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
        self.capacity = spec.capacity
        self.long: Long = spec.pack.long
        self.skip_bad = skip_bad
        self.limit_bytes = limit_bytes
        self.waiting_bytes = 0
        self._seed = spec.seed
        self._indices = indices
        self._appetite = appetite
        self._sources: dict[str, SourceSpec] = {source.name: source for source in spec.sources}

    def open(self, source: str, q: int, taken: int, block_hash: int, *, ahead: bool) -> PageReader:
        """Return a reader that has ordered the block's next page."""
        epoch, block, order = self._sources[source].place(self._seed, q)
        location = self._indices[source].location(block)
        full = self._appetite.page_samples(source)
        # A block that is needed at once comes in a small page first, so that a lane can begin early.
        first = full if ahead else min(full, self._appetite.first_samples)
        return PageReader(self, source, q, epoch, block, location, order, taken, block_hash, first, full)

    def ahead(self, source: str) -> int:
        """Return how many blocks to open before they are needed."""
        return self._appetite.ahead

    def order_again(self, source: str, q: int, samples: Sequence[int]) -> int:
        """Order some samples of a block for documents whose tokens are not in memory; return the ticket."""
        epoch, block, _ = self._sources[source].place(self._seed, q)
        return self.backend.submit(Order(source, epoch, block, self._indices[source].location(block), tuple(samples)))

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
                stop = min(stop, start + self.capacity)
            if stop - start != item.length:
                raise StateError(
                    f"{where}: a held document has {stop - start} tokens, {item.length} in the state; {CHANGED}"
                )
            if item.payload is not None:
                item.payload.tokens, item.payload.mask = _cut(page, start, stop)

    def check_hash(self, page: Page, block_hash: int, where: str) -> None:
        """Raise StateError where a block isn't the one that a state was made from."""
        if block_hash and page.block_hash != block_hash:
            raise StateError(
                f"{where}: the block's bytes hash to {page.block_hash:016x}, {block_hash:016x} in the state; {CHANGED}"
            )

    def release(self, payload: Payload) -> None:
        """Take a document that has been delivered out of the account."""
        self.waiting_bytes -= payload.counted
        payload.counted = 0


CHANGED = "the data or the tokenizer changed since the state was saved; restore them, or start anew"


class PageReader:
    """Gives an open block's samples from pages that hold a run of them each."""

    __slots__ = (
        "_bad", "_block", "_counts", "_document", "_epoch", "_expected", "_feed", "_full", "_location", "_mask",
        "_meta", "_offsets", "_order", "_order_at", "_ordered", "_page_start", "_page_stop", "_q", "_source",
        "_taken", "_ticket", "_tokens", "block_hash", "samples",
    )  # fmt: skip

    def __init__(
        self,
        feed: PageFeed,
        source: str,
        q: int,
        epoch: int,
        block: int,
        location: Location,
        order: list[int],
        taken: int,
        block_hash: int,
        first: int,
        full: int,
    ) -> None:
        self._feed = feed
        self._source = source
        self._q = q
        self._epoch = epoch
        self._block = block
        self._location = location
        self._order = order
        self._expected = block_hash
        self._full = full
        self._taken = taken
        self._page_start = self._page_stop = self._ordered = taken
        self._ticket: int | None = None
        self._order_at = -1
        self._document = 0
        self._bad: dict[int, str] = {}
        self._counts: list[int] = []
        self._offsets: list[int] = []
        self._tokens: NDArray[np.int32] | None = None
        self._mask: NDArray[np.uint8] | None = None
        self._meta: list[list[int]] | None = None
        self.samples = len(order)
        self.block_hash = block_hash
        self._order_page(first)

    def take(self) -> Sequence[Item] | None:
        """Return the next sample's documents; see BlockReader.take. Raises DataError for a bad sample."""
        taken = self._taken
        if taken >= self._page_stop:
            self._take_page()
        place = taken - self._page_start
        self._taken = taken + 1
        if taken == self._order_at:
            self._order_page(self._full)
        count = self._counts[place]
        if count == 1:
            document = self._document
            self._document = document + 1
            item = self._item(document, taken, 0)
            return () if item is None else (item,)
        if count == 0:
            if self._bad and place in self._bad:
                if self._feed.skip_bad:
                    return None
                raise DataError(f"source {self._source}: {self._bad[place]}; mend it, or set on_bad_sample: skip")
            return ()
        document = self._document
        self._document = document + count
        items = [self._item(document + part, taken, part) for part in range(count)]
        return [item for item in items if item is not None]

    def close(self) -> None:
        """Drop what was ordered and not taken."""
        if self._ticket is not None:
            self._feed.backend.drop(self._ticket)
            self._ticket = None
        self._tokens = self._mask = None

    def _item(self, document: int, taken: int, part: int) -> Item | None:
        start, stop = self._offsets[document], self._offsets[document + 1]
        feed = self._feed
        if stop - start > feed.capacity and feed.long != "split":
            if feed.long == "drop":
                return None
            stop = start + feed.capacity
        size = 4 * (stop - start)
        if feed.waiting_bytes + size > feed.limit_bytes:
            payload = Payload()
        else:
            feed.waiting_bytes += size
            # A copy, so that a waiting document doesn't keep its page.
            payload = Payload(
                self._tokens[start:stop].copy(),  # type: ignore[index]
                None if self._mask is None else self._mask[start:stop].copy(),
                size,
            )
        return Item(
            self._source,
            self._q,
            self._order[taken],
            part,
            0,
            stop - start,
            () if self._meta is None else tuple(self._meta[document]),
            self.block_hash,
            payload,
        )

    def _order_page(self, size: int) -> None:
        """Order the next run of samples, if there is one and none is under way."""
        start = self._ordered
        if start >= self.samples or self._ticket is not None:
            return
        self._ordered = min(start + size, self.samples)
        samples = tuple(self._order[start : self._ordered])
        self._ticket = self._feed.backend.submit(Order(self._source, self._epoch, self._block, self._location, samples))

    def _take_page(self) -> None:
        self._order_page(self._full)
        ticket, self._ticket = self._ticket, None
        if ticket is None:
            raise DataError(
                f"source {self._source}, block {self._block}: asked for more than its {self.samples} samples"
            )
        page = self._feed.backend.take(ticket)
        self._feed.check_hash(page, self._expected, f"source {self._source}, block {self._block}")
        self._expected = self.block_hash = page.block_hash
        self._page_start, self._page_stop = self._page_stop, self._ordered
        # The next run is ordered when half of this one is taken.
        self._order_at = (self._page_start + self._page_stop) // 2 if self._ordered < self.samples else -1
        self._document = 0
        self._bad = dict(page.bad)
        self._counts = page.counts.tolist()
        self._offsets = page.offsets.tolist()
        self._tokens = page.tokens.view(np.int32)
        self._mask = page.mask
        self._meta = None if page.meta is None else page.meta.tolist()


def _cut(page: Page, start: int, stop: int) -> tuple[NDArray[np.int32], NDArray[np.uint8] | None]:
    mask = None if page.mask is None else page.mask[start:stop].copy()
    return page.tokens[start:stop].view(np.int32).copy(), mask
