"""Budgets, row by row: the longest that fits tokens and budgets, and what happens where one is overdrawn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from lane_items import item, placed

from zephon.config import Pack
from zephon.item import Item
from zephon.lanes.best_fit import BestFit
from zephon.lanes.budgets import BudgetedBestFit, amounts_of

AMOUNTS = amounts_of(("images", "patches"), {"pictures": ("patches", "images"), "web": (), "odd": ("images",)})


def packer(*, pool: int = 1, budgets: dict[str, int] | None = None, align: int = 1) -> BudgetedBestFit:
    pack = Pack(pool=pool, align=align, budgets=budgets or {"group": 3})
    return BudgetedBestFit(pack, 10, amounts_of(tuple(pack.budgets), {"web": ("group",)}))


def test_amounts_are_found_by_source_and_name() -> None:
    def made(source: str, *meta: int) -> Item:
        return Item(source, 0, 0, 0, 0, 5, meta)

    assert AMOUNTS(made("pictures", 40, 2)) == (2, 40)
    assert AMOUNTS(made("web")) == (0, 0)
    assert AMOUNTS(made("odd", 7)) == (7, 0)
    assert AMOUNTS(made("odd", -7)) == (0, 0)


def test_a_row_takes_the_longest_that_its_budget_allows() -> None:
    packing = packer(pool=4)
    for sample, (length, amount) in enumerate([(4, 2), (6, 2), (3, 1), (2, 0)]):
        packing.push(item(sample, length, group=amount))
    assert placed(packing.pop(last=True)) == [(0, 0, 4, 0), (2, 0, 3, 4), (3, 0, 2, 7)]
    assert placed(packing.pop(last=True)) == [(1, 0, 6, 0)]
    assert packing.pop(last=True) is None


def test_a_document_over_a_budget_shares_its_row_with_those_that_have_none() -> None:
    packing = packer(pool=3)
    for sample, (length, amount) in enumerate([(4, 9), (5, 1), (2, 0)]):
        packing.push(item(sample, length, group=amount))
    assert placed(packing.pop(last=True)) == [(0, 0, 4, 0), (2, 0, 2, 4)]
    assert placed(packing.pop(last=True)) == [(1, 0, 5, 0)]


def test_a_long_document_is_cut_and_keeps_its_place() -> None:
    packing = packer()
    packing.push(item(0, 23, group=2))
    packing.push(item(1, 5, group=2))
    rows = [placed(packing.pop(last=True)) for _ in range(4)]
    assert rows == [[(0, 0, 10, 0)], [(0, 10, 20, 0)], [(0, 20, 23, 0)], [(1, 0, 5, 0)]]


@given(
    lengths=st.lists(st.integers(1, 25), max_size=30),
    pool=st.integers(1, 8),
    align=st.sampled_from([1, 2, 5]),
    cut=st.integers(0, 30),
)
def test_without_a_binding_budget_it_is_best_fit_and_restores_to_itself(
    lengths: list[int], pool: int, align: int, cut: int
) -> None:
    pack = Pack(pool=pool, align=align, budgets={"group": 1 << 40})
    own, plain = BudgetedBestFit(pack, 10, lambda _: (1,)), BestFit(pack, 10)
    for sample, length in enumerate(lengths):
        own.push(item(sample, length))
        plain.push(item(sample, length))
        if sample == cut:
            restored = BudgetedBestFit(pack, 10, lambda _: (1,))
            restored.restore(own.state(), own.held())
            own = restored
        while (row := plain.pop(last=False)) is not None:
            assert placed(own.pop(last=False)) == placed(row)
        assert own.pop(last=False) is None
    while (row := plain.pop(last=True)) is not None:
        assert placed(own.pop(last=True)) == placed(row)
    assert own.pop(last=True) is None
