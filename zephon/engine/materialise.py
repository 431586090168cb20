"""Pixels of planned rows: ordered as soon as the rows are planned, taken in order, in bounded memory."""

from __future__ import annotations

from collections import deque
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zephon.engine.attached import Placed, attachments_of
from zephon.engine.feed import PageFeed
from zephon.item import Row
from zephon.page import FRAMES, HEIGHT, NUMBER, WIDTH, Wanted
from zephon.stages.fields import unusable

# Of one document; more of them are decoded by several workers at a time.
IMAGES_AN_ORDER = 4


class Decoded(NamedTuple):
    """A row's attachment and its pixels, uint8 [frames, height, width, 3]; `broken`: its bytes gave none."""

    placed: Placed
    pixels: NDArray[np.uint8]
    broken: bool


class _Waiting:
    __slots__ = ("num_bytes", "orders", "parts")

    def __init__(self, placed: list[Placed]) -> None:
        blocks = [list(block) for _, block in groupby(placed, key=lambda each: (each.item.source, each.item.q))]
        self.parts = [
            block[first : first + IMAGES_AN_ORDER]
            for block in blocks
            for first in range(0, len(block), IMAGES_AN_ORDER)
        ]
        self.num_bytes = sum(3 * c[FRAMES] * c[HEIGHT] * c[WIDTH] for c in (each.columns for each in placed))
        # Tickets of the parts, once they are ordered.
        self.orders: list[int] | None = None


class Materialiser:
    """Orders the attachments of planned rows while what is under way takes at most `limit_bytes`, and gives them back.

    Nothing is ordered for a document that no row has.
    """

    def __init__(self, feed: PageFeed, *, limit_bytes: int) -> None:
        self._feed = feed
        self._limit_bytes = limit_bytes
        self._under_way = 0
        self._rows: dict[int, _Waiting] = {}
        self._queue: deque[int] = deque()

    def add(self, sequence: int, row: Row | None) -> None:
        """Accept a planned row, later ones after earlier ones; its documents must be in memory."""
        self._rows[sequence] = _Waiting(attachments_of(row))
        self._queue.append(sequence)
        self._order_more()

    def take(self, sequence: int) -> list[Decoded]:
        """Return a row's attachments, in the order of their tokens, waiting for them.

        Raises DataError where one can't be decoded and bad samples aren't skipped, StateError where its block is
        another than when its document was made.
        """
        waiting = self._rows.pop(sequence)
        if waiting.orders is None:
            self._queue.remove(sequence)
            self._order(waiting)
        decoded: list[Decoded] = []
        orders = waiting.orders or []
        try:
            for ticket, part in zip(tuple(orders), waiting.parts, strict=True):
                del orders[0]
                decoded += self._decoded(ticket, part)
        finally:
            self._under_way -= waiting.num_bytes
            for ticket in orders:
                self._feed.backend.drop(ticket)
        self._order_more()
        return decoded

    def close(self) -> None:
        """Give up all that was ordered."""
        for waiting in self._rows.values():
            for ticket in waiting.orders or ():
                self._feed.backend.drop(ticket)
        self._rows.clear()
        self._queue.clear()

    def _decoded(self, ticket: int, part: list[Placed]) -> list[Decoded]:
        page = self._feed.backend.take(ticket)
        bad = dict(page.bad)
        result = []
        for number, (placed, pixels) in enumerate(zip(part, page.pixels or (), strict=True)):
            item = placed.item
            self._feed.check_hash(
                page, item.block_hash, f"source {item.source}, block {item.q} (global), sample {item.sample}"
            )
            if number in bad and not self._feed.skip_bad:
                raise unusable(item.source, bad[number])
            result.append(Decoded(placed, pixels, number in bad))
        return result

    def _order_more(self) -> None:
        while self._queue:
            waiting = self._rows[self._queue[0]]
            if self._under_way and self._under_way + waiting.num_bytes > self._limit_bytes:
                return
            self._queue.popleft()
            self._order(waiting)

    def _order(self, waiting: _Waiting) -> None:
        self._under_way += waiting.num_bytes
        waiting.orders = []
        for part in waiting.parts:
            item = part[0].item
            wanted = tuple(
                Wanted(each.item.sample, c[NUMBER], c[FRAMES], c[HEIGHT], c[WIDTH])
                for each, c in ((each, each.columns) for each in part)
            )
            waiting.orders.append(self._feed.order_pixels(item.source, item.q, wanted))
