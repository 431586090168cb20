"""The shuffle operator: keyed order from a buffer of references."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lane_items import item

from zephon.errors import ConfigError
from zephon.hashing import draw, key
from zephon.lanes.shuffle import Shuffle


def order(count: int, *, buffer: int, seed: int = 1, lane: int = 0, position: int = 0, stop: int = -1) -> list[int]:
    """Return the samples of `count` items in the order in which a shuffle gives them; restored after `stop` outputs."""
    shuffle = Shuffle(seed=seed, lane=lane, position=position, buffer=buffer)
    given: list[int] = []

    def pop(*, last: bool) -> bool:
        nonlocal shuffle
        out = shuffle.pop(last=last)
        if out is None:
            return False
        given.append(out.sample)
        if len(given) == stop:
            state, held = shuffle.state(), shuffle.held()
            shuffle = Shuffle(seed=seed, lane=lane, position=position, buffer=buffer)
            shuffle.restore(state, held)
        return True

    for sample in range(count):
        shuffle.push(item(sample, 1))
        while pop(last=False):
            pass
    while pop(last=True):
        pass
    return given


def test_the_order_is_the_page_s() -> None:
    keyed = key(1, "shuffle", 2, 7)
    waiting, expected = [], []
    for sample in range(20):
        waiting.append(sample)
        while len(waiting) >= 4 or (sample == 19 and waiting):
            index = draw(keyed, len(expected)) % len(waiting)
            expected.append(waiting[index])
            waiting[index] = waiting[-1]
            waiting.pop()
    assert order(20, buffer=4, lane=7, position=2) == expected


@given(count=st.integers(0, 40), buffer=st.integers(1, 50))
def test_every_item_comes_out_once(count: int, buffer: int) -> None:
    assert sorted(order(count, buffer=buffer)) == list(range(count))


def test_a_buffer_of_one_changes_nothing() -> None:
    assert order(10, buffer=1) == list(range(10))


def test_seed_lane_and_place_in_the_chain_each_make_another_order() -> None:
    first = order(30, buffer=20)
    others = [order(30, buffer=20, seed=2), order(30, buffer=20, lane=1), order(30, buffer=20, position=1)]
    assert all(other != first for other in others)


@given(stop=st.integers(1, 29))
def test_a_restored_shuffle_goes_on(stop: int) -> None:
    assert order(30, buffer=8, stop=stop) == order(30, buffer=8)


@pytest.mark.parametrize("buffer", [0, -1, 2.5, "4", None])
def test_a_buffer_that_is_no_number_from_one_on_is_refused(buffer: object) -> None:
    with pytest.raises(ConfigError, match=r"operators\[3\]\.options\.buffer=.* must be a whole number of at least 1"):
        Shuffle(seed=0, lane=0, position=3, buffer=buffer)  # type: ignore[arg-type]
