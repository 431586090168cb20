"""Order of blocks and samples: a bijection at every size, fixed for ever, uniform to the eye of a statistic."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, permutations

import oracle_plan
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zephon.hashing import MASK, key
from zephon.permute import SORT_BELOW, order, permute

KEYS = st.integers(min_value=0, max_value=MASK)
# Sizes around the keyed sort's end and around powers of four, where the Feistel network's halves grow.
SIZES = [1, 2, 3, 4, 63, 64, 65, 1023, 1024, 4094, 4095, 4096, 4097, 16383, 16384, 16385, 65537]
HUGE = [2**20 + 1, 2**31, 2**32 - 1, 2**40 + 12345]


@pytest.mark.parametrize("size", SIZES)
def test_every_block_occurs_exactly_once(size: int) -> None:
    assert sorted(permute(99, slot, size) for slot in range(size)) == list(range(size))


@pytest.mark.parametrize("size", HUGE)
def test_huge_sizes_stay_in_range_and_never_collide(size: int) -> None:
    slots = [*range(1000), *range(size - 1000, size)]
    blocks = [permute(5, slot, size) for slot in slots]
    assert len(set(blocks)) == len(slots)
    assert all(0 <= block < size for block in blocks)


@settings(max_examples=60)
@given(k=KEYS, size=st.one_of(st.integers(1, 300), st.sampled_from(SIZES + HUGE)), data=st.data())
def test_permute_agrees_with_the_page(k: int, size: int, data: st.DataObject) -> None:
    slot = data.draw(st.integers(0, size - 1))
    assert permute(k, slot, size) == oracle_plan.permute(k, slot, size)


@given(k=KEYS, size=st.integers(min_value=0, max_value=200))
def test_order_agrees_with_the_page(k: int, size: int) -> None:
    assert order(k, size) == oracle_plan.shuffled(k, size)


def test_orders_never_change() -> None:
    k = key(1234, "blocks", "web", 0)
    assert order(k, 8) == [3, 7, 0, 5, 2, 6, 4, 1]
    assert [permute(k, slot, 10) for slot in range(10)] == [3, 7, 9, 8, 0, 5, 2, 6, 4, 1]
    assert [permute(k, slot, 5000) for slot in range(5)] == [115, 4850, 1401, 1863, 3616]
    assert [permute(k, slot, 10**12) for slot in range(3)] == [143924980645, 281116544662, 187968043482]


def test_small_orders_are_equally_frequent() -> None:
    counts = Counter(tuple(order(key(1, "test", n), 4)) for n in range(24 * 400))
    assert set(counts) == set(permutations(range(4)))
    # Chi-square with 23 degrees of freedom exceeds 60 about once in 30,000; the keys are fixed.
    assert sum((count - 400) ** 2 / 400 for count in counts.values()) < 60


@pytest.mark.parametrize("size", [100, SORT_BELOW, 5000])
def test_first_and_last_slot_go_anywhere(size: int) -> None:
    keys = [key(2, "test", n) for n in range(2000)]
    for slot in (0, size - 1):
        tenths = Counter(permute(k, slot, size) * 10 // size for k in keys)
        # Chi-square with 9 degrees of freedom exceeds 34 about once in 10,000.
        assert sum((tenths[t] - 200) ** 2 / 200 for t in range(10)) < 34


@pytest.mark.parametrize("size", [4096, 5000, 20000])
def test_neighbouring_slots_go_apart(size: int) -> None:
    blocks = [permute(3, slot, size) for slot in range(size)]
    distance = sum(abs(a - b) for a, b in pairwise(blocks)) / (size - 1)
    assert abs(distance / (size / 3) - 1) < 0.05  # a uniform order moves by a third of the size on average
    assert sum(block == slot for slot, block in enumerate(blocks)) < 10  # about one fixed point


def test_epochs_have_unrelated_orders() -> None:
    size = 5000
    orders = [[permute(key(1, "blocks", "web", e), s, size) for s in range(size)] for e in range(2)]
    assert sum(a == b for a, b in zip(*orders, strict=True)) < 10
