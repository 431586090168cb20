"""Pixels of planned rows: all of them, in order, with a bound on what is under way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zephon import DataError, StateError
from zephon.engine.attached import attachments_of
from zephon.engine.materialise import Materialiser
from zephon.item import Item, Payload, Row, Span
from zephon.page import COLUMNS, FRAMES, HASH, HEIGHT, NUMBER, PLACE, TOKENS, WIDTH, Page, Wanted


class FakeFeed:
    """A feed and its backend in one: pixels are the number of the image; keeps count of bytes under way."""

    skip_bad = False

    def __init__(self) -> None:
        self.backend = self
        self.orders: dict[int, tuple[Wanted, ...]] = {}
        self.most = self.dropped = 0
        self.bad: set[int] = set()
        self.block_hash = 5

    def order_pixels(self, source: str, q: int, wanted: tuple[Wanted, ...]) -> int:
        ticket = self.most_ticket() + 1
        self.orders[ticket] = wanted
        self.most = max(self.most, self.under_way())
        return ticket

    def most_ticket(self) -> int:
        self.tickets = getattr(self, "tickets", 0) + 1
        return self.tickets

    def under_way(self) -> int:
        return sum(3 * each.height * each.width for wanted in self.orders.values() for each in wanted)

    def take(self, ticket: int) -> Page:
        wanted = self.orders.pop(ticket)
        none = np.zeros(0, np.uint32)
        pixels = tuple(np.full((1, each.height, each.width, 3), each.number, np.uint8) for each in wanted)
        bad = tuple((place, "broken") for place, each in enumerate(wanted) if each.number in self.bad)
        offsets, counts = np.zeros(1, np.int64), np.zeros(0, np.int32)
        return Page(none, offsets, counts, None, None, bad, self.block_hash, pixels=pixels)

    def drop(self, ticket: int) -> None:
        self.dropped += self.orders.pop(ticket, None) is not None

    def check_hash(self, page: Page, block_hash: int, where: str) -> None:
        if page.block_hash != block_hash:
            raise StateError(f"{where}: changed")


def row(first: int, sizes: list[int]) -> Row:
    """Return a row of one document for each size, with as many images of that many pixels a side."""
    spans = []
    offset = 0
    for q, size in enumerate(sizes):
        table = np.zeros((size, COLUMNS), np.int64)
        for number in range(size):
            table[number, [PLACE, TOKENS, NUMBER]] = 3 * number, 2, first + number
            table[number, [FRAMES, HEIGHT, WIDTH, HASH]] = 1, size, size, 7
        payload = Payload(np.zeros(3 * size + 1, np.int32))
        payload.attachments = table
        item = Item("web", q, 0, 0, 0, 3 * size + 1, (), 5, payload)
        spans.append(Span(item, 0, item.length, offset))
        offset += item.length
        first += size
    return Row(tuple(spans))


@given(rows=st.lists(st.lists(st.integers(0, 6), max_size=4), min_size=1, max_size=8), limit=st.integers(1, 2000))
def test_every_row_gets_its_own_in_order_within_the_bound(rows: list[list[int]], limit: int) -> None:
    feed: Any = FakeFeed()
    materialiser = Materialiser(feed, limit_bytes=limit)
    first = 0
    expected = []
    for sequence, sizes in enumerate(rows):
        materialiser.add(sequence, row(first, sizes))
        expected.append(list(range(first, first + sum(sizes))))
        first += sum(sizes)
    for sequence, numbers in enumerate(expected):
        decoded = materialiser.take(sequence)
        assert [int(each.pixels[0, 0, 0, 0]) % 256 for each in decoded] == [number % 256 for number in numbers]
        assert [each.placed.columns[NUMBER] for each in decoded] == numbers
        offsets = [each.placed.offset for each in decoded]
        assert offsets == sorted(offsets)
    # One row may be over it, so that every row can come.
    row_bytes = max(sum(3 * size**3 for size in sizes) for sizes in rows)
    assert feed.most <= max(limit, row_bytes)
    assert not feed.orders


def test_what_is_taken_makes_room_for_later_rows() -> None:
    feed: Any = FakeFeed()
    # Room for one row of 105 bytes (two images of 2 x 2 pixels and three of 3 x 3), not for two.
    materialiser = Materialiser(feed, limit_bytes=150)
    for sequence in range(3):
        materialiser.add(sequence, row(0, [2, 3]))
    assert len(feed.orders) == 2
    for sequence, left in enumerate((2, 2, 0)):
        materialiser.take(sequence)
        # The next row's are under way before they are asked for.
        assert len(feed.orders) == left


def test_closing_gives_up_what_was_ordered() -> None:
    feed: Any = FakeFeed()
    materialiser = Materialiser(feed, limit_bytes=1 << 20)
    materialiser.add(0, row(0, [2, 3]))
    assert len(feed.orders) == 2
    materialiser.close()
    assert not feed.orders


def test_a_broken_image_or_a_changed_block_ends_the_stream_and_leaves_nothing_ordered() -> None:
    feed: Any = FakeFeed()
    materialiser = Materialiser(feed, limit_bytes=1 << 20)
    materialiser.add(0, row(0, [2, 3]))
    feed.bad = {1}
    with pytest.raises(DataError, match="source web: broken; mend it"):
        materialiser.take(0)
    assert not feed.orders
    feed.bad, feed.block_hash = set(), 6
    materialiser.add(1, row(0, [2, 3]))
    with pytest.raises(StateError, match="changed"):
        materialiser.take(1)
    assert not feed.orders


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (1, 4), (0, 4), (4, 7)])
def test_a_piece_with_half_an_image_is_refused(start: int, stop: int) -> None:
    item = row(0, [3]).spans[0].item
    assert len(attachments_of(Row((Span(item, 3, 6, 0),)))) == 1
    with pytest.raises(DataError, match="was cut by the packer"):
        attachments_of(Row((Span(item, start, stop, 0),)))
