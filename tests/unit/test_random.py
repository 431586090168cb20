"""Chance for stages: stable for ever, and fair."""

from __future__ import annotations

import numpy as np
import pytest

from zephon.hashing import draw
from zephon.random import SampleRandom, attachment_random, sample_random


def random() -> SampleRandom:
    return sample_random(seed=1234, source="web", epoch=2, block=77, sample=5)


def test_draws_never_change() -> None:
    # Golden numbers: if they change, every stream with augmentation changes.
    rng = random()
    assert rng.key == 853879669838013068
    assert [rng.bits() for _ in range(3)] == [draw(rng.key, counter) for counter in range(3)]
    assert rng.random() == 0.8198301528691273
    assert [rng.integers(0, 10) for _ in range(8)] == [0, 8, 6, 9, 3, 2, 9, 4]
    assert rng.shuffle(range(8)) == [3, 4, 1, 0, 2, 5, 7, 6]
    assert rng.choice("abcdef") == "a"
    assert rng.numpy().bit_generator.random_raw(2).tolist() == [11267198600108205092, 2850920322980189517]


def test_each_part_of_the_key_gives_other_draws() -> None:
    base = {"seed": 1, "source": "web", "epoch": 0, "block": 3, "sample": 4}
    others = [{"seed": 2}, {"source": "code"}, {"epoch": 1}, {"block": 4}, {"sample": 5}]
    draws = [sample_random(**{**base, **other}).bits() for other in [{}, *others]]
    assert len(set(draws)) == len(draws)


def test_random_is_in_the_unit_interval_and_uniform() -> None:
    rng = SampleRandom(1)
    values = np.array([rng.random() for _ in range(20_000)])
    assert values.min() >= 0
    assert values.max() < 1
    assert abs(values.mean() - 0.5) < 0.01
    counts, _ = np.histogram(values, 10, (0, 1))
    assert np.abs(counts - 2000).max() < 200


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 4), (5, 6), (0, 2**64), (2**70, 2**70 + 3)])
def test_integers_stay_in_their_range(low: int, high: int) -> None:
    rng = SampleRandom(2)
    assert all(low <= rng.integers(low, high) < high for _ in range(100))


def test_integers_reach_every_value_equally() -> None:
    rng = SampleRandom(3)
    counts = np.bincount([rng.integers(0, 7) for _ in range(14_000)], minlength=7)
    assert np.abs(counts - 2000).max() < 200


@pytest.mark.parametrize(("low", "high"), [(0, 0), (3, 2), (0, 2**64 + 1)])
def test_an_impossible_range_is_refused(low: int, high: int) -> None:
    with pytest.raises(ValueError, match="1 to 2\\^64 numbers"):
        SampleRandom(0).integers(low, high)


def test_shuffle_keeps_the_items_and_leaves_the_argument() -> None:
    items = list(range(50))
    shuffled = SampleRandom(4).shuffle(items)
    assert items == list(range(50))
    assert shuffled != items
    assert sorted(shuffled) == items


def test_shuffle_gives_every_order_equally() -> None:
    rng = SampleRandom(5)
    orders = [tuple(rng.shuffle("abc")) for _ in range(6000)]
    counts = [orders.count(order) for order in sorted(set(orders))]
    assert len(counts) == 6
    assert max(abs(count - 1000) for count in counts) < 150


def test_numpy_generator_depends_on_the_key_alone() -> None:
    rng = SampleRandom(6)
    first = rng.numpy().integers(0, 1 << 30, 10).tolist()
    rng.bits()
    assert rng.numpy().integers(0, 1 << 30, 10).tolist() == first
    assert SampleRandom(7).numpy().integers(0, 1 << 30, 10).tolist() != first


def test_each_attachment_draws_for_itself_and_always_the_same() -> None:
    base = {"seed": 1, "source": "web", "epoch": 0, "block": 3, "sample": 4, "number": 0}
    others = [{name: 7 if name != "source" else "code"} for name in base]
    draws = [attachment_random(**{**base, **other}).bits() for other in [{}, *others]]  # type: ignore[arg-type]
    assert len(set(draws)) == len(draws)
    # For ever: another value is another stream of pixels.
    assert draws[0] == 6474590596384895175
    plain = {name: value for name, value in base.items() if name != "number"}
    assert draws[0] != sample_random(**plain).bits()  # type: ignore[arg-type]
