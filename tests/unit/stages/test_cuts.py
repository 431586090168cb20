"""Documents with images are cut between texts and images, never in an image, into pieces as long as may be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from zephon.stages.cuts import cut


@st.composite
def layouts(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """Return a document's tokens and its blocks."""
    at = 0
    blocks = []
    for _ in range(draw(st.integers(0, 5))):
        start = at + draw(st.integers(0, 6))
        at = start + draw(st.integers(1, 6))
        blocks.append((start, at))
    return at + draw(st.integers(0, 6)), blocks


def allowed(stop: int, start: int, length: int, blocks: list[tuple[int, int]], limit: int, *, closed: bool) -> bool:
    """Return whether a piece from `start` may end at `stop`, by the rule's words."""
    if any(a < stop < b for a, b in blocks) or not start < stop <= min(length, start + limit):
        return False
    ends_with_block = any(stop == b for _, b in blocks)
    return closed or not ends_with_block or stop - start + 1 <= limit


@given(layout=layouts(), limit=st.integers(1, 12), closed=st.booleans())
def test_pieces_are_the_longest_that_cut_no_block(
    layout: tuple[int, list[tuple[int, int]]], limit: int, closed: bool
) -> None:
    length, blocks = layout
    expected: list[tuple[int, int]] | None = []
    start = 0
    while start < length and expected is not None:
        stops = [stop for stop in range(length + 1) if allowed(stop, start, length, blocks, limit, closed=closed)]
        if not stops:
            expected = None
            break
        expected.append((start, max(stops)))
        start = max(stops)
    assert cut(length, blocks, limit=limit, closed=closed) == expected


def test_a_block_that_fits_no_piece_is_told() -> None:
    assert cut(9, [(2, 8)], limit=5, closed=True) is None
    assert cut(9, [(2, 8)], limit=6, closed=False) is None
    assert cut(9, [(2, 8)], limit=6, closed=True) == [(0, 2), (2, 8), (8, 9)]
    assert cut(9, [(2, 8)], limit=7, closed=False) == [(0, 2), (2, 9)]
