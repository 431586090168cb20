"""Does a state belong to a plan? Every difference has a name, and only what lies ahead may differ."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from lane_states import source_state

from zephon.errors import StateError
from zephon.lanes.state import LaneState
from zephon.state import check_plan, encode_lane, make_state
from zephon.state.starting import check_lanes

WEB = {"hash": "ab", "blocks": 9, "stage": {"kind": "text", "field": "txt"}}
PLAN: dict[str, Any] = {
    "version": 1,
    "seed": 7,
    "lanes": 4,
    "length": None,
    "restart": False,
    "mix": {
        "by": "tokens",
        "entries": [{"from": 0, "weights": {"web": 3, "code": 1}}, {"from": 40, "weights": {"web": 1}}],
    },
    "sources": {"code": {**deepcopy(WEB), "hash": "cd"}, "web": WEB},
    "tokenizer": {"hash": "ef", "eos": 2},
    "operators": [{"kind": "shuffle", "options": {"buffer": 8}, "version": None}],
}


def changed(path: str, value: Any) -> dict[str, Any]:
    plan = deepcopy(PLAN)
    node: Any = plan
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in parents:
        node = node[part]
    node[last] = value
    return plan


def test_an_equal_plan_passes() -> None:
    check_plan(PLAN, deepcopy(PLAN), 0)
    check_plan(PLAN, deepcopy(PLAN), 1000)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("seed", 8, "seed is 7 in the state and 8 here"),
        ("seed", 7.0, "seed is 7 in the state and 7.0 here"),
        ("restart", 0, "restart is False in the state and 0 here"),
        ("length", 90, "length is unset in the state and 90 here"),
        ("mix.by", "samples", "mix.by is 'tokens' in the state and 'samples' here"),
        ("mix.entries.0.weights.web", 2, r"mix.entries\[0\].weights.web is 3 in the state and 2 here"),
        ("mix.entries.1.from", 39, r"mix.entries\[1\].from is 40 in the state and 39 here"),
        ("sources.web.hash", "xx", "sources.web.hash is 'ab' in the state and 'xx' here"),
        ("sources.web.stage.field", "md", "sources.web.stage.field is 'txt' in the state and 'md' here"),
        ("tokenizer.eos", 3, "tokenizer.eos is 2 in the state and 3 here"),
        ("tokenizer", None, "tokenizer is {.*} in the state and unset here"),
        ("operators.0.options.buffer", 9, r"operators\[0\].options.buffer is 8 in the state and 9 here"),
        ("operators", [], r"operators is \[.*\] in the state and \[\] here"),
    ],
)
def test_each_difference_is_named_with_both_values(path: str, value: Any, words: str) -> None:
    with pytest.raises(StateError, match=rf"^the state is of another plan: {words}; restore these settings, or start"):
        check_plan(PLAN, changed(path, value), 41)


def test_all_differences_are_named_at_once() -> None:
    with pytest.raises(StateError) as caught:
        check_plan(PLAN, {**changed("sources.web.hash", "xx"), "seed": 1, "lanes": 8}, 0)
    assert [words in str(caught.value) for words in ("seed is", "lanes is", "sources.web.hash is")] == [True] * 3
    assert "\n" not in str(caught.value)


def test_a_source_that_is_gone_or_new_and_in_force_is_named() -> None:
    with pytest.raises(StateError, match=r"sources.code is {.*} in the state and unset here"):
        check_plan(PLAN, {**PLAN, "sources": {"web": WEB}}, 0)
    more = changed("mix.entries.0.weights.books", 1)
    more["sources"]["books"] = WEB
    with pytest.raises(StateError, match=r"sources.books is unset in the state"):
        check_plan(PLAN, more, 0)


def test_mixtures_from_the_position_on_may_change() -> None:
    later = changed("mix.entries.1", {"from": 50, "weights": {"code": 1}})
    check_plan(PLAN, later, 40)
    check_plan(PLAN, changed("mix.entries", PLAN["mix"]["entries"][:1]), 40)
    check_plan(changed("mix.entries", PLAN["mix"]["entries"][:1]), PLAN, 40)
    with pytest.raises(StateError, match=r"mix.entries"):
        check_plan(PLAN, later, 41)
    with pytest.raises(StateError, match=r"mix.entries"):
        check_plan(PLAN, changed("mix.entries", PLAN["mix"]["entries"][:1]), 41)


def test_the_first_mixture_never_changes() -> None:
    with pytest.raises(StateError, match=r"mix.entries\[0\].weights.code is 1 in the state and 2 here"):
        check_plan(PLAN, changed("mix.entries.0.weights.code", 2), 0)


def test_sources_that_only_later_mixtures_use_may_come_and_go() -> None:
    later = changed("mix.entries.1", {"from": 50, "weights": {"books": 1}})
    later["sources"]["books"] = WEB
    check_plan(PLAN, later, 40)
    check_plan(later, PLAN, 40)
    with pytest.raises(StateError, match=r"sources.books is"):
        check_plan(PLAN, later, 51)
    # One that both have must be the same, used or not.
    other = deepcopy(later)
    other["sources"]["books"] = {**WEB, "hash": "zz"}
    with pytest.raises(StateError, match=r"sources.books.hash"):
        check_plan(later, other, 0)


@pytest.mark.parametrize(
    "damage",
    [
        ("mix", 5),
        ("mix.entries", 5),
        ("mix.entries.0", None),
        ("mix.entries.1.from", "40"),
        ("mix.entries.1.from", None),
        ("mix.entries.0.weights", 3),
        ("mix.entries.0.weights", None),
        ("sources", []),
        ("sources.web", 1),
    ],
    ids=str,
)
def test_a_damaged_plan_differs_and_never_breaks_the_check(damage: tuple[str, Any]) -> None:
    with pytest.raises(StateError, match="the state is of another plan"):
        check_plan(changed(*damage), PLAN, 41)


def lane(sequences: int, *, entry: int = 0, number_of_pass: int = 0, source: str = "web") -> bytes:
    sources = (source_state(source, 0, next_k=4, pulls=9, blocks=((1, 1, 5),)),) if sequences else ()
    return encode_lane(LaneState(number_of_pass, sequences, entry, sources))


def check(consumed: int, lanes: dict[int, bytes], plan: dict[str, Any], saved: dict[str, Any] | None = None) -> None:
    check_lanes(make_state(saved or PLAN, consumed, lanes), sorted(lanes), plan)


def test_lanes_stand_where_the_position_says() -> None:
    # 10 sequences over 4 lanes: 3, 3, 2, 2.
    check(10, {0: lane(3), 1: lane(3), 2: lane(2), 3: lane(2)}, PLAN)
    check(0, {0: lane(0)}, PLAN)
    for wrong in (2, 4):
        with pytest.raises(
            StateError,
            match=f"^lane 1 has {wrong} sequences of pass 0, but consumed=10 means 3 of pass 0; .*different moments$",
        ):
            check(10, {1: lane(wrong)}, PLAN)


def test_a_rank_s_lanes_must_all_be_there() -> None:
    state = make_state(PLAN, 10, {0: lane(3)})
    with pytest.raises(StateError, match=r"^the state lacks lane 1, .*\(it has 1 of 4\); merge_states of all ranks"):
        check_lanes(state, range(2), PLAN)
    # Lanes of other ranks may be missing, or damaged: this rank doesn't need them.
    assert check_lanes({**state, "lanes": {**state["lanes"], "3": b"junk"}}, [0], PLAN) == {0: lane(3)}


def test_a_damaged_lane_is_named() -> None:
    with pytest.raises(StateError, match=r"^lane 2: "):
        check(10, {2: lane(2)[:-1]}, PLAN)


def test_a_lane_of_a_finite_stream_may_have_run_dry() -> None:
    finite = {**PLAN, "length": 20}
    check(10, {0: lane(3)}, finite)
    check(10, {0: lane(1)}, finite)
    with pytest.raises(StateError, match="lane 0 has 4 sequences of pass 0, but consumed=10 means 3 of pass 0"):
        check(10, {0: lane(4)}, finite)


def test_passes_are_counted() -> None:
    finite = {**PLAN, "length": 20}
    check(50, {0: lane(3, number_of_pass=2)}, finite)
    with pytest.raises(StateError, match="lane 0 has 3 sequences of pass 1, but consumed=50 means 3 of pass 2"):
        check(50, {0: lane(3, number_of_pass=1)}, finite)
    check(50, {0: lane(3)}, {**finite, "restart": True})


def test_at_a_pass_s_end_a_lane_has_turned_or_not() -> None:
    finite = {**PLAN, "length": 20}
    check(40, {0: lane(5, number_of_pass=1)}, finite)
    check(40, {0: lane(0, number_of_pass=2)}, finite)
    with pytest.raises(StateError, match="lane 0 has 6 sequences"):
        check(40, {0: lane(6, number_of_pass=1)}, finite)


def test_a_mixture_that_a_lane_took_early_can_not_change_any_more() -> None:
    later = changed("mix.entries.1", {"from": 50, "weights": {"code": 1}})
    check(10, {0: lane(3)}, later)
    with pytest.raises(StateError, match=r"^lane 0 is in mixture 1 of mix.schedule already, and that differs here"):
        check(10, {0: lane(3, entry=1)}, later)


def test_a_source_that_a_lane_has_a_place_in_must_be_configured() -> None:
    with pytest.raises(StateError, match=r"^lane 0 holds a place in source books, which isn't configured; restore it"):
        check(10, {0: lane(3, source="books")}, PLAN)
