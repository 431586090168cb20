"""The stream's randomness: fixed numbers, agreement with an independent implementation, no visible pattern."""

from __future__ import annotations

import numpy as np
import oracle_plan
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zephon.hashing import GOLDEN, MASK, draw, draws, key, mix

WORDS = st.integers(min_value=0, max_value=MASK)
PARTS = st.lists(st.one_of(st.text(max_size=8), st.integers(min_value=0, max_value=1 << 70)), max_size=4)


@pytest.mark.parametrize(
    ("seed", "outputs"),
    [
        # Published test vectors of SplitMix64; its output c is mix(seed + (c + 1) * GOLDEN).
        (0, [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]),
        (1234567, [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]),
    ],
)
def test_mix_is_splitmix64(seed: int, outputs: list[int]) -> None:
    assert [mix((seed + (c + 1) * GOLDEN) & MASK) for c in range(len(outputs))] == outputs


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ((0, "blocks", "web", 0), 0x2059F9E86BDD85FD),
        ((1234, "spread", "web", 63, 0), 0x86CFABB75BA5FAB0),
        ((-1, "phase", "Überschrift", 2**40), 0xB7B3BECE35551583),
        ((7, "shuffle"), 0x53D6E90BA35B1CC9),
    ],
)
def test_keys_never_change(parts: tuple[int, str], expected: int) -> None:
    assert key(*parts) == expected


def test_draws_never_change() -> None:
    assert [draw(0, c) for c in range(3)] == [5197578548964807871, 14804455941960215590, 8883187925210353900]
    assert [draw(0xDEADBEEF, c) for c in (0, 1, 2**40, 2**63)] == [
        948475220252533093,
        3595740817925947756,
        16692290680913857180,
        8945236738452319116,
    ]


@given(seed=st.integers(min_value=-(1 << 70), max_value=1 << 70), purpose=st.text(max_size=8), parts=PARTS)
def test_key_agrees_with_the_page(seed: int, purpose: str, parts: list[str | int]) -> None:
    assert key(seed, purpose, *parts) == oracle_plan.key(seed, purpose, *parts)


@given(k=WORDS, counter=WORDS)
def test_draw_agrees_with_the_page(k: int, counter: int) -> None:
    assert draw(k, counter) == oracle_plan.draw(k, counter)


@given(k=WORDS, start=st.integers(min_value=0, max_value=1 << 62), count=st.integers(min_value=0, max_value=20))
def test_draws_in_bulk_are_the_draws_one_by_one(k: int, start: int, count: int) -> None:
    assert draws(k, start, start + count).tolist() == [draw(k, c) for c in range(start, start + count)]


def test_parts_are_kept_apart() -> None:
    keys = [
        key(1, "a", "b"),
        key(1, "ab"),
        key(1, "a", "b", ""),
        key(1, "", "ab"),
        key(1, "a", 7),
        key(1, "a", "7"),
        key(11, "a", 7),
        key(1, "a", 7, 7),
        key(1, "a", 77),
    ]
    assert len(set(keys)) == len(keys)


def test_every_bit_of_a_draw_is_fair_and_independent_of_its_neighbour() -> None:
    values = draws(key(5, "test"), 0, 1 << 16)
    bits = (values[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    # 65,536 fair coins deviate from half by 0.0098 (five standard deviations) about once in a million.
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.0098
    assert np.abs((bits[1:] ^ bits[:-1]).mean(axis=0) - 0.5).max() < 0.0098


def test_neighbouring_keys_draw_unrelated_numbers() -> None:
    flips = [(draw(k, c) ^ draw(k ^ (1 << b), c)).bit_count() for k, c in ((0, 0), (99, 5)) for b in range(64)]
    assert min(flips) > 10
    assert 30 < sum(flips) / len(flips) < 34
