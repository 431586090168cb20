"""A loader's states: at each position, for any topology, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from streams import BACKENDS, rows, stream, take

from zephon import ConfigError, Loader, StateError, Topology, merge_states, stream_digest


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """An endless stream of four lanes."""
    return stream(tmp_path_factory.mktemp("stream"))


@pytest.fixture(scope="module")
def expected(config: dict[str, Any]) -> list[tuple[int, list[int], list[int]]]:
    """The stream's first 60 rows, taken in one go."""
    with Loader(config) as loader:
        return rows(take(loader, 60))


Rows = list[tuple[int, list[int], list[int]]]


# States


def test_resume_equals_continue_at_every_batch(config: dict[str, Any], expected: Rows) -> None:
    states = []
    with Loader(config) as loader:
        for _ in range(12):
            states.append(loader.state_dict())
            take(loader, 1)
        digest = stream_digest(loader.state_dict())
    for position, state in enumerate(states):
        assert state["consumed"] == position
        with Loader(config) as resumed:
            resumed.load_state_dict(state)
            assert rows(take(resumed, 12 - position)) == expected[position:12]
            assert stream_digest(resumed.state_dict()) == digest


def test_a_state_before_the_first_batch_is_the_beginning(config: dict[str, Any], expected: Rows) -> None:
    with Loader(config) as started:
        begin = started.state_dict()
    fresh = Loader(config)
    assert fresh.state_dict() == begin
    assert begin["consumed"] == 0
    assert sorted(begin["lanes"]) == ["0", "1", "2", "3"]
    fresh.load_state_dict(begin)
    assert rows(take(fresh, 3)) == expected[:3]
    fresh.close()


def test_a_state_comes_back_as_it_was_loaded(config: dict[str, Any]) -> None:
    with Loader(config) as loader:
        take(loader, 7)
        state = loader.state_dict()
    with Loader(config) as resumed:
        resumed.load_state_dict(state)
        assert resumed.consumed == 7
        assert resumed.state_dict() == state
        assert resumed.state_dict(consumed=7) == state
        iter(resumed)
        resumed._start()
        assert resumed.state_dict() == state


def test_a_state_can_be_loaded_twice_and_back_and_forth(config: dict[str, Any], expected: Rows) -> None:
    with Loader({**config, "backend": BACKENDS["threads"]}) as loader:
        take(loader, 4)
        early = loader.state_dict()
        take(loader, 6)
        late = loader.state_dict()
        for state, at in ((early, 4), (early, 4), (late, 10), (early, 4)):
            loader.load_state_dict(state)
            assert loader.state_dict() == state
            assert rows(take(loader, 3)) == expected[at : at + 3]


def test_a_live_iterator_goes_on_from_a_state_loaded_later(config: dict[str, Any], expected: Rows) -> None:
    with Loader(config) as donor:
        take(donor, 9)
        state = donor.state_dict()
    with Loader({**config, "backend": BACKENDS["threads"]}) as loader:
        iterator = iter(loader)
        loader.load_state_dict(state)
        assert rows([next(iterator)]) == expected[9:10]
        take(loader, 5)
        loader.load_state_dict(state)
        assert rows([next(iterator) for _ in range(2)]) == expected[9:11]


def test_states_of_earlier_positions_are_those_of_then(config: dict[str, Any]) -> None:
    with Loader({**config, "snapshots": 4, "micro_batch_size": 2}) as loader:
        taken = {0: loader.state_dict()}
        for batch in range(1, 4):
            take(loader, 1)
            taken[2 * batch] = loader.state_dict()
        for consumed, state in taken.items():
            assert loader.state_dict(consumed=consumed) == state
        take(loader, 4)
        assert loader.state_dict(consumed=6) == taken[6]
        with pytest.raises(
            StateError, match=r"^no state at consumed=2: .*\(the oldest held is 6\); .*or raise snapshots$"
        ):
            loader.state_dict(consumed=2)


def test_without_a_batch_there_is_no_other_position(config: dict[str, Any]) -> None:
    loader = Loader(config)
    with pytest.raises(StateError, match=r"^no state at consumed=4: 0 sequences were handed out"):
        loader.state_dict(consumed=4)
    with pytest.raises(StateError, match=r"^no state at consumed=-1: no batch was handed out since 0"):
        loader.state_dict(consumed=-1)
    loader.close()


def test_states_are_values(config: dict[str, Any], expected: Rows) -> None:
    with Loader(config) as loader:
        take(loader, 5)
        state = loader.state_dict()
        kept = {**state, "lanes": dict(state["lanes"])}
        state["lanes"].clear()
        state["consumed"] = 99
        assert loader.state_dict() == kept
        loader.load_state_dict(kept)
        kept["lanes"].clear()
        assert rows(take(loader, 2)) == expected[5:7]


# Topologies


@pytest.mark.parametrize("sizes", [(1, 2, 4), (4, 1, 8), (8, 2, 1)])
def test_another_topology_goes_on_with_the_same_stream(
    config: dict[str, Any], expected: Rows, sizes: tuple[int, ...]
) -> None:
    state, got = None, []
    for size in sizes:
        states = []
        for rank in range(size):
            with Loader(config, Topology(dp_rank=rank, dp_size=size)) as loader:
                if state is not None:
                    loader.load_state_dict(state)
                got += rows(take(loader, 16 // size))
                states.append(loader.state_dict())
        state = merge_states(states)
    assert sorted(got) == expected[:48]
    with Loader(config) as plain:
        take(plain, 48)
        assert plain.state_dict() == state


def test_a_rank_takes_any_state_that_has_its_lanes(config: dict[str, Any]) -> None:
    parts = []
    for rank in range(2):
        with Loader(config, Topology(dp_rank=rank, dp_size=2)) as loader:
            take(loader, 4)
            parts.append(loader.state_dict())
    assert sorted(parts[1]["lanes"]) == ["1", "3"]
    with Loader(config, Topology(dp_rank=1, dp_size=2)) as loader:
        loader.load_state_dict(parts[1])
        take(loader, 1)
        assert loader.consumed == 10
        before = loader.state_dict()
        with pytest.raises(
            StateError, match=r"^the state lacks lane 1, which this rank needs \(it has 2 of 4\); merge_states of all"
        ):
            loader.load_state_dict(parts[0])
        # A refused state leaves the loader as it was.
        assert loader.state_dict() == before
    with (
        Loader(config) as whole,
        pytest.raises(StateError, match=r"^the state lacks lane 1, .*merge_states of all ranks first"),
    ):
        whole.load_state_dict(parts[0])


def test_a_size_that_does_not_fit_the_lanes_is_refused_at_once(config: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match=r"^dp_size=3 and lanes=4 don't divide each other; dp sizes that work: 1, 2, 4,"
    ):
        Loader(config, Topology(dp_rank=0, dp_size=3))


# Refused states


def test_a_state_of_another_plan_is_refused_and_the_differences_named(config: dict[str, Any]) -> None:
    with Loader(config) as loader:
        take(loader, 4)
        state = loader.state_dict()
    for changes, words in (
        ({"seed": 6}, "seed is 5 in the state and 6 here"),
        ({"pack": {"pool": 5}}, "pack.pool is 4 in the state and 5 here"),
        ({"sequence_length": 16}, "sequence_length is 32 in the state and 16 here"),
        ({"lanes": 8}, "lanes is 4 in the state and 8 here"),
        ({"spread": 2}, "spread is 4 in the state and 2 here"),
        ({"length": 20}, "length is unset in the state and 20 here"),
        ({"operators": [{"kind": "shuffle"}]}, "operators is"),
    ):
        with Loader({**config, **changes}) as other:
            before = other.state_dict()
            with pytest.raises(StateError, match=rf"^the state is of another plan: {words}.*restore these settings"):
                other.load_state_dict(state)
            assert other.state_dict() == before


def test_what_is_no_order_may_change(config: dict[str, Any], expected: Rows) -> None:
    with Loader(config) as loader:
        take(loader, 4)
        state = loader.state_dict()
    changes: dict[str, Any] = {
        "micro_batch_size": 3,
        "global_batch_size": 6,
        "backend": BACKENDS["threads"],
        "snapshots": 1,
        "memory_bytes": 1000,
        "engine": "process",
    }
    with Loader({**config, **changes}) as other:
        other.load_state_dict(state)
        assert rows(take(other, 4)) == expected[4:16]


def test_a_later_mixture_may_be_added(config: dict[str, Any], expected: Rows) -> None:
    with Loader(config) as loader:
        take(loader, 8)
        state = loader.state_dict()
    changed = {**config, "mix": {"schedule": [{"from": 12, "weights": {"web": 1}}]}}
    with Loader(changed) as other:
        straight = rows(take(other, 40))
    with Loader(changed) as other:
        other.load_state_dict(state)
        assert rows(take(other, 32)) == straight[8:]
    assert straight[:12] == expected[:12]
    assert straight[12:] != expected[12:40]
    late = {**config, "mix": {"schedule": [{"from": 7, "weights": {"web": 1}}]}}
    with Loader(late) as other, pytest.raises(StateError, match=r"mix.entries"):
        other.load_state_dict(state)
