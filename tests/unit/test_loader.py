"""The loader: one position that all iterators share, states at it, and what is refused."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest
from streams import BACKENDS, rows, stream, take

from zephon import ConfigError, DataError, Loader, StateError, StoreError


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


# Position and iterators


def test_the_stream_is_the_same_in_any_micro_batches(config: dict[str, Any], expected: Rows) -> None:
    for size in (1, 3, 20):
        with Loader({**config, "micro_batch_size": size}) as loader:
            batches = take(loader, 60 // size)
            assert all(batch["tokens"].shape == (size, 32) for batch in batches)
            assert rows(batches) == expected
            assert loader.consumed == 60


def test_iterators_share_the_position(config: dict[str, Any], expected: Rows) -> None:
    with Loader(config) as loader:
        first, second = iter(loader), iter(loader)
        got = [next(first), next(second), next(second), next(first), *take(loader, 1)]
        assert rows(got) == expected[:5]
        assert iter(first) is first


def test_making_an_iterator_moves_nothing(config: dict[str, Any]) -> None:
    with Loader(config) as loader:
        iter(loader)
        assert loader.consumed == 0
        assert loader.state_dict()["consumed"] == 0


def test_it_works_without_with(config: dict[str, Any], expected: Rows) -> None:
    loader = Loader(config)
    assert rows(take(loader, 2)) == expected[:2]
    loader.close()


# Lanes


def test_lanes_are_those_set_else_the_state_s_else_the_batch_s(config: dict[str, Any]) -> None:
    unset = {name: value for name, value in config.items() if name != "lanes"}
    with Loader(config) as loader:
        take(loader, 4)
        state = loader.state_dict()
    with Loader({**unset, "global_batch_size": 8}) as loader:
        assert loader.plan["lanes"] == 8
        loader.load_state_dict(state)
        assert loader.plan["lanes"] == 4
        take(loader, 4)
        assert sorted(loader.state_dict()["lanes"]) == ["0", "1", "2", "3"]
    with Loader({**unset, "length": 9}) as loader:
        assert loader.plan["lanes"] == 1
    with pytest.raises(ConfigError, match=r"^an endless stream needs lanes or global_batch_size; set one of them$"):
        Loader(unset)


# Ends


def test_a_closed_loader_says_so(config: dict[str, Any]) -> None:
    loader = Loader(config)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    loader.close()
    loader.close()
    for use in (
        lambda: next(iterator),
        lambda: next(iter(loader)),
        loader.state_dict,
        lambda: loader.load_state_dict(state),
        loader.__enter__,
    ):
        with pytest.raises(StoreError, match=r"^the loader is closed; make a new one$"):
            use()


def test_an_exception_in_the_trainer_closes_the_loader(config: dict[str, Any]) -> None:
    before = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError), Loader({**config, "backend": BACKENDS["threads"]}) as loader:
        len(take(loader, 1)) // 0
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("iterating", [False, True])
def test_a_loader_that_is_forgotten_closes_itself(config: dict[str, Any], iterating: bool) -> None:
    before = set(threading.enumerate())
    loader = Loader({**config, "backend": BACKENDS["threads"]})
    iterator = iter(loader)
    next(iterator)
    assert set(threading.enumerate()) > before
    gone = weakref.ref(loader)
    del loader
    if iterating:
        # An iterator in use keeps its loader.
        assert next(iterator) is not None
        assert gone() is not None
    del iterator
    gc.collect()
    assert gone() is None
    assert set(threading.enumerate()) <= before


def test_loading_a_state_leaves_nothing_of_the_session_before(config: dict[str, Any]) -> None:
    with Loader({**config, "backend": BACKENDS["threads"]}) as loader:
        take(loader, 1)
        state, threads = loader.state_dict(), threading.active_count()
        for _ in range(5):
            loader.load_state_dict(state)
            take(loader, 1)
        assert threading.active_count() == threads


def test_a_batch_lost_in_an_interruption_is_noticed(config: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with Loader(config) as loader:
        batches = iter(loader)
        next(batches)

        def interrupted(batch: object) -> object:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(loader._collator, "hand_over", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(batches)
        state = loader.state_dict()
        with pytest.raises(StateError, match="was lost in an interruption; load the last state_dict"):
            next(batches)
        loader.load_state_dict(state)
        assert next(batches).sequences == (1,)


@pytest.mark.parametrize("engine", ["thread", "process"])
def test_a_mistake_in_an_operator_is_one_line_with_its_place(config: dict[str, Any], engine: str) -> None:
    broken = {**config, "lanes": 1, "operators": [{"kind": "broken_operator:Broken"}], "engine": engine}
    with Loader(broken) as loader, pytest.raises(DataError) as caught:
        take(loader, 50)
    assert str(caught.value).startswith("planning sequence ")
    assert "(lane 0) raised KeyError: 'tenth'; mend the operator" in str(caught.value)
