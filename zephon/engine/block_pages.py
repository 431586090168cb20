"""The pages of an open block, ordered before they are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from zephon.errors import DataError
from zephon.page import Location, Order, Page
from zephon.stages.fields import unusable

if TYPE_CHECKING:
    from zephon.engine.feed import PageFeed


class BlockPlace(NamedTuple):
    """Which block a reader reads."""

    source: str
    q: int
    epoch: int
    block: int
    location: Location


class BlockPages:
    """Orders and takes an open block's pages, each a run of its samples; `order` numbers the samples in block order."""

    __slots__ = ("_expected", "_feed", "_ordered", "_place", "_ticket", "block_hash", "order", "samples")

    def __init__(self, feed: PageFeed, place: BlockPlace, order: list[int], *, taken: int, block_hash: int) -> None:
        self._feed = feed
        self._place = place
        self._expected = block_hash
        self._ordered = taken
        self._ticket: int | None = None
        self.order = order
        self.samples = len(order)
        self.block_hash = block_hash

    def expect(self) -> None:
        """Order the first page of a block that is needed soon."""
        if self._ordered == 0:
            self.order_more()

    def close(self) -> None:
        """Drop what was ordered and not taken."""
        if self._ticket is not None:
            self._feed.backend.drop(self._ticket)
            self._ticket = None
        self._ordered = self.samples

    def order_more(self) -> None:
        """Order the next run of samples, of the size that is due, if there is one and none is under way."""
        size = self._feed.page_samples(self._place.source)
        self.order_page(size if size >= self.samples else uneven(size, self._place.q + self._ordered))

    def order_page(self, size: int) -> None:
        """Order the next run of at most `size` samples, if there is one and none is under way."""
        start = self._ordered
        if start >= self.samples or self._ticket is not None:
            return
        self._ordered = min(start + size, self.samples)
        place = self._place
        samples = tuple(self.order[start : self._ordered])
        self._ticket = self._feed.backend.submit(Order(place.source, place.epoch, place.block, place.location, samples))

    def next_page(self) -> tuple[Page, int]:
        """Return the page that was ordered last, and the place in `order` where its run ends."""
        self.order_more()
        ticket, self._ticket = self._ticket, None
        place = self._place
        if ticket is None:
            raise DataError(f"source {place.source}, block {place.block}: closed while its samples were asked for")
        page = self._feed.take(ticket, place.source)
        self._feed.check_hash(page, self._expected, f"source {place.source}, block {place.block}")
        self._expected = self.block_hash = page.block_hash
        return page, self._ordered

    def next_kept(self) -> tuple[Page, int, bool]:
        """Return what next_page does, and whether the page's tokens may stay in memory."""
        page, stop = self.next_page()
        return page, stop, self._feed.admits(page)

    def refuse(self, message: str) -> None:
        """Raise DataError for a bad sample, unless these are skipped."""
        if not self._feed.skip_bad:
            raise unusable(self._place.source, message)


def uneven(size: int, number: int) -> int:
    """Return a size between half of `size` and `size`, spread evenly over consecutive numbers.

    Lanes begin together and take evenly: with equal pages all open blocks would run out of theirs at once, and
    batches come in gusts of a minute.
    """
    return size - (number * 40503 % 65536) * (size // 2 + 1) // 65536
