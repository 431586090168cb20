"""Packers, row by row against docs/stream.md; rows of ten tokens unless said."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lane_items import item, placed, pushed

from zephon.config import Pack
from zephon.item import Row
from zephon.lanes.best_fit import BestFit, BestFitSplit
from zephon.lanes.concat import Concat
from zephon.lanes.first_fit import FirstFit
from zephon.lanes.pad import Pad
from zephon.lanes.protocol import Packer

KINDS: dict[str, Callable[[Pack, int], Packer]] = {
    "best_fit": BestFit,
    "best_fit_split": BestFitSplit,
    "first_fit": FirstFit,
    "concat": Concat,
    "pad": Pad,
}
POOLED = ("best_fit", "best_fit_split", "first_fit")


def packer(kind: str, *, pool: int = 4, align: int = 1, capacity: int = 10) -> Packer:
    return KINDS[kind](Pack(kind=kind, pool=pool, align=align), capacity)


@pytest.mark.parametrize("kind", POOLED)
def test_a_pooled_packer_waits_until_its_pool_is_full(kind: str) -> None:
    packing = pushed(packer(kind, pool=3), 4, 4)
    assert packing.pop(last=False) is None
    packing.push(item(2, 9))
    assert placed(packing.pop(last=False)) == [(0, 0, 4, 0), (1, 0, 4, 4)] + (
        [(2, 0, 2, 8)] if kind == "best_fit_split" else []
    )


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_packer_has_no_row(kind: str) -> None:
    assert packer(kind).pop(last=False) is None
    assert packer(kind).pop(last=True) is None


def test_best_fit_starts_with_the_oldest_and_takes_the_longest_that_fit() -> None:
    packing = pushed(packer("best_fit"), 3, 4, 6, 1)
    assert placed(packing.pop(last=False)) == [(0, 0, 3, 0), (2, 0, 6, 3), (3, 0, 1, 9)]
    assert placed(packing.pop(last=True)) == [(1, 0, 4, 0)]


def test_best_fit_takes_the_oldest_of_equally_long_ones() -> None:
    packing = pushed(packer("best_fit"), 6, 2, 2, 2)
    assert placed(packing.pop(last=False)) == [(0, 0, 6, 0), (1, 0, 2, 6), (2, 0, 2, 8)]
    assert [held.sample for held in packing.held()] == [3]


@pytest.mark.parametrize("kind", POOLED)
def test_a_document_as_long_as_a_row_has_it_to_itself(kind: str) -> None:
    packing = pushed(packer(kind), 10, 1, 1, 1)
    assert placed(packing.pop(last=False)) == [(0, 0, 10, 0)]
    assert packing.pop(last=False) is None


@pytest.mark.parametrize("kind", POOLED)
def test_a_long_document_gives_whole_rows_and_stays_the_oldest(kind: str) -> None:
    packing = pushed(packer(kind, pool=2), 23, 5)
    assert placed(packing.pop(last=False)) == [(0, 0, 10, 0)]
    assert [(held.sample, held.start) for held in packing.held()] == [(0, 10), (1, 0)]
    assert placed(packing.pop(last=False)) == [(0, 10, 20, 0)]
    assert placed(packing.pop(last=False)) == [(0, 20, 23, 0), (1, 0, 5, 3)]


@pytest.mark.parametrize("kind", POOLED)
def test_pieces_start_at_multiples_of_align(kind: str) -> None:
    packing = pushed(packer(kind, align=4, capacity=9), 3, 5, 2, 1)
    # 3 tokens end at 3, so the next piece starts at 4 and fills the row exactly.
    assert placed(packing.pop(last=False)) == [(0, 0, 3, 0), (1, 0, 5, 4)]
    assert placed(packing.pop(last=True)) == [(2, 0, 2, 0), (3, 0, 1, 4)]


def test_best_fit_split_cuts_the_oldest_waiting_to_fill_the_row() -> None:
    packing = pushed(packer("best_fit_split"), 7, 9, 8, 9)
    assert placed(packing.pop(last=False)) == [(0, 0, 7, 0), (1, 0, 3, 7)]
    # What is left of the cut one is still the oldest: its pieces lie in adjacent rows.
    assert [(held.sample, held.start) for held in packing.held()] == [(1, 3), (2, 0), (3, 0)]
    packing.push(item(4, 4))
    assert placed(packing.pop(last=False)) == [(1, 3, 9, 0), (4, 0, 4, 6)]


def test_best_fit_split_leaves_room_for_one_token_empty() -> None:
    packing = pushed(packer("best_fit_split", pool=2), 9, 5)
    assert placed(packing.pop(last=False)) == [(0, 0, 9, 0)]


def test_best_fit_split_fills_room_for_two_tokens() -> None:
    packing = pushed(packer("best_fit_split", pool=2), 8, 5)
    assert placed(packing.pop(last=False)) == [(0, 0, 8, 0), (1, 0, 2, 8)]


def test_first_fit_goes_through_the_pool_once_in_order_of_age() -> None:
    packing = pushed(packer("first_fit"), 4, 3, 5, 2)
    # Best fit would have taken the 5, which leaves 1; first fit takes the older 3, then 2.
    assert placed(packing.pop(last=False)) == [(0, 0, 4, 0), (1, 0, 3, 4), (3, 0, 2, 7)]
    assert [held.sample for held in packing.held()] == [2]


def test_pad_gives_a_row_to_each_document_and_each_piece() -> None:
    packing = pushed(packer("pad"), 3, 13, 10)
    rows = [placed(packing.pop(last=False)) for _ in range(5)]
    assert rows == [[(0, 0, 3, 0)], [(1, 0, 10, 0)], [(1, 10, 13, 0)], [(2, 0, 10, 0)], None]


def test_concat_waits_until_a_row_is_full_and_shares_its_edge_token() -> None:
    packing = pushed(packer("concat"), 4, 5)
    assert packing.pop(last=False) is None
    packing.push(item(2, 12))
    assert placed(packing.pop(last=False)) == [(0, 0, 4, 0), (1, 0, 5, 4), (2, 0, 1, 9)]
    assert placed(packing.pop(last=False)) == [(2, 0, 10, 0)]
    assert packing.pop(last=False) is None
    assert placed(packing.pop(last=True)) == [(2, 9, 12, 0)]
    assert packing.pop(last=True) is None


def test_concat_shares_an_edge_that_is_a_document_of_one_token() -> None:
    packing = pushed(packer("concat", capacity=5), 4, 1, 4)
    assert placed(packing.pop(last=False)) == [(0, 0, 4, 0), (1, 0, 1, 4)]
    assert placed(packing.pop(last=False)) == [(1, 0, 1, 0), (2, 0, 4, 1)]
    # The last edge, 2's last token, was delivered: there is nothing left to predict.
    assert [(held.sample, held.start) for held in packing.held()] == [(2, 3)]
    assert packing.pop(last=True) is None


def test_concat_delivers_a_single_token_that_is_no_edge() -> None:
    packing = pushed(packer("concat"), 1)
    assert placed(packing.pop(last=True)) == [(0, 0, 1, 0)]
    assert packing.pop(last=True) is None


def test_concat_keeps_documents_aligned() -> None:
    packing = pushed(packer("concat", align=4, capacity=9), 3, 3, 3)
    assert placed(packing.pop(last=False)) == [(0, 0, 3, 0), (1, 0, 3, 4), (2, 0, 1, 8)]
    assert placed(packing.pop(last=True)) == [(2, 0, 3, 0)]


def drained(packing: Packer, lengths: list[int], *, restore: Callable[[Packer], Packer]) -> list[Row]:
    rows = []
    for sample, length in enumerate(lengths):
        packing.push(item(sample, length))
        while (row := packing.pop(last=False)) is not None:
            rows.append(row)
            packing = restore(packing)
    while (row := packing.pop(last=True)) is not None:
        rows.append(row)
        packing = restore(packing)
    return rows


LENGTHS = st.lists(st.integers(1, 25), max_size=30)


@given(
    kind=st.sampled_from(sorted(KINDS)),
    lengths=LENGTHS,
    pool=st.integers(1, 6),
    align=st.sampled_from([1, 2, 4]),
    capacity=st.sampled_from([5, 9, 13]),
)
def test_every_token_is_placed_once_in_order_and_inside_the_row(
    kind: str, lengths: list[int], pool: int, align: int, capacity: int
) -> None:
    rows = drained(packer(kind, pool=pool, align=align, capacity=capacity), lengths, restore=lambda same: same)
    seen: dict[int, list[int]] = {sample: [] for sample in range(len(lengths))}
    for number, row in enumerate(rows):
        end = 0
        for place, (held, start, stop, offset) in enumerate(row.spans):
            assert offset == end + -end % align
            assert start < stop
            end = offset + stop - start
            tokens = list(range(start, stop))
            if kind == "concat" and number and not place:
                # The edge token is in both rows.
                assert seen[held.sample][-1] == start
                tokens = tokens[1:]
            seen[held.sample] += tokens
        assert 0 < end <= capacity
    assert seen == {sample: list(range(length)) for sample, length in enumerate(lengths)}


@given(kind=st.sampled_from(sorted(KINDS)), lengths=LENGTHS, pool=st.integers(1, 6), align=st.sampled_from([1, 4]))
def test_a_packer_is_its_state_and_what_it_holds(kind: str, lengths: list[int], pool: int, align: int) -> None:
    def again(packing: Packer) -> Packer:
        fresh = packer(kind, pool=pool, align=align, capacity=9)
        fresh.restore(packing.state(), packing.held())
        return fresh

    straight = drained(packer(kind, pool=pool, align=align, capacity=9), lengths, restore=lambda same: same)
    restored = drained(packer(kind, pool=pool, align=align, capacity=9), lengths, restore=again)
    assert [placed(row) for row in restored] == [placed(row) for row in straight]


@pytest.mark.parametrize("kind", ["best_fit", "best_fit_split"])
@given(lengths=st.lists(st.integers(1, 9), min_size=30, max_size=60))
def test_no_document_waits_longer_than_the_pool(kind: str, lengths: list[int]) -> None:
    packing, waited, rows = packer(kind, pool=5), dict.fromkeys(range(len(lengths)), 0), 0
    for sample, length in enumerate(lengths):
        packing.push(item(sample, length))
        waited[sample] = rows
        while (row := packing.pop(last=False)) is not None:
            rows += 1
            for span in row.spans:
                assert rows - waited[span.item.sample] <= 5
