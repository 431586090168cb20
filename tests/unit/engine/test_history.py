"""History: the lanes' states at the end of each of the last micro-batches."""

from __future__ import annotations

import pytest

from zephon.engine.history import History
from zephon.errors import StateError
from zephon.lanes.state import LaneState


def state(sequences: int) -> LaneState:
    return LaneState(sequences=sequences)


def history(*, keep: int, batches: int) -> History:
    """Return the history of two lanes after so many batches; each batch of 2 changes one lane."""
    made = History(10, {0: state(0), 1: state(0)}, keep)
    for number in range(1, batches + 1):
        made.add(10 + 2 * number, {number % 2: state(number)})
    return made


def test_each_position_has_the_states_that_were_in_force_there() -> None:
    made = history(keep=8, batches=5)
    assert made.at(10) == {0: state(0), 1: state(0)}
    assert made.at(12) == {0: state(0), 1: state(1)}
    assert made.at(14) == {0: state(2), 1: state(1)}
    assert made.at(20) == {0: state(4), 1: state(5)}


@pytest.mark.parametrize("keep", [1, 3])
def test_the_last_micro_batches_are_held_and_no_more(keep: int) -> None:
    made = history(keep=keep, batches=9)
    for back in range(keep + 1):
        last, before = 9 - back, 8 - back
        assert made.at(28 - 2 * back) == {last % 2: state(last), before % 2: state(before)}
    with pytest.raises(StateError, match=rf"^no state at consumed={28 - 2 * keep - 2}: .*\(the oldest held is"):
        made.at(28 - 2 * keep - 2)


@pytest.mark.parametrize("position", [0, 9, 11, 30, -1])
def test_a_position_in_between_or_beyond_is_refused_with_those_that_are_held(position: int) -> None:
    with pytest.raises(
        StateError,
        match=rf"^no state at consumed={position}: micro-batches end at 10, 12, 14 \(the oldest held is 10\); ask for",
    ):
        history(keep=8, batches=2).at(position)


def test_what_is_returned_is_the_caller_s() -> None:
    made = history(keep=8, batches=2)
    made.at(14).clear()
    made.at(10).clear()
    assert made.at(14) == {0: state(2), 1: state(1)}
