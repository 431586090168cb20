"""Samples of an open block, as the items that lanes decide about."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from zephon.engine.block_pages import BlockPages, BlockPlace
from zephon.item import Item, Payload

if TYPE_CHECKING:
    from zephon.engine.feed import PageFeed

# Documents whose tokens lie in one piece of memory.
SHARE = 16


class PageReader:
    """Gives an open block's samples as items."""

    __slots__ = ("_feed", "_pages", "_place", "samples", "take")

    def __init__(self, feed: PageFeed, place: BlockPlace, pages: BlockPages, *, taken: int) -> None:
        self._feed = feed
        self._place = place
        self._pages = pages
        self.samples = pages.samples
        # Bound here, because a call of a generator's __next__ is all that a sample costs.
        self.take: Callable[[], Sequence[Item] | None] = self._samples(taken).__next__

    @property
    def block_hash(self) -> int:
        """XXH3-64 of the block's raw bytes."""
        return self._pages.block_hash

    def expect(self) -> None:
        """Order the first page of a block that is needed soon."""
        self._pages.expect()

    def close(self) -> None:
        """Drop what was ordered and not taken."""
        self._pages.close()

    def _samples(self, taken: int) -> Iterator[Sequence[Item] | None]:
        """Yield each sample's documents from number `taken` on; see BlockReader.take.

        Items are made when they are taken: those of all open pages together would fill the processor's cache.
        """
        feed, source, q, pages = self._feed, self._place.source, self._place.q, self._pages
        order = pages.order
        while taken < self.samples:
            page, stop = pages.next_page()
            start = taken
            block_hash, bad = page.block_hash, dict(page.bad)
            payloads = feed.payloads(page)
            # An array gives plain numbers and is as small as NumPy's.
            offsets = array("q", page.offsets.tobytes())
            counts = array("i", page.counts.tobytes())
            meta = None if page.meta is None else page.meta.tolist()
            plain = payloads is not None and meta is None and not bad and feed.longest == sys.maxsize
            document = first = 0
            payload: Payload | None = None
            del page
            # The next run is ordered when half of this one is taken.
            order_at = (start + stop) // 2
            for taken in range(start, stop):
                if taken == order_at:
                    pages.order_more()
                count = counts[taken - start]
                if count == 1 and plain:
                    if payloads and not document % SHARE:
                        payload, first = payloads.popleft(), offsets[document]
                    at = offsets[document]
                    document += 1
                    length = offsets[document] - at
                    yield (Item(source, q, order[taken], 0, 0, length, (), block_hash, payload, at - first),)
                    continue
                if taken - start in bad:
                    pages.refuse(bad[taken - start])
                    yield None
                    continue
                items = []
                for part in range(count):
                    if payloads and not document % SHARE:
                        payload, first = payloads.popleft(), offsets[document]
                    at, length = offsets[document] - first, offsets[document + 1] - offsets[document]
                    if length <= feed.longest or feed.long == "truncate":
                        # Without the page, each document has to be read again by itself.
                        own, at = (feed.missing(), 0) if payload is None else (payload, at)
                        length = min(length, feed.longest)
                        numbers = () if meta is None else tuple(meta[document])
                        items.append(Item(source, q, order[taken], part, 0, length, numbers, block_hash, own, at))
                    document += 1
                yield tuple(items)
            taken = stop
