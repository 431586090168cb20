"""Finite streams: passes, their length, and states in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from streams import rows, stream, take

from zephon import Batch, Loader, StateError, Topology, stream_digest


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """An endless stream of four lanes."""
    return stream(tmp_path_factory.mktemp("stream"))


Rows = list[tuple[int, list[int], list[int]]]


@pytest.fixture(scope="module")
def finite(config: dict[str, Any]) -> dict[str, Any]:
    """The same data, 21 sequences a pass, micro-batches of 4."""
    return {**config, "length": 21, "micro_batch_size": 4}


def one_pass(loader: Loader) -> Rows:
    return [row for row in rows(list(loader)) if row[0] < 21]


def test_only_finite_streams_have_a_length(config: dict[str, Any], finite: dict[str, Any]) -> None:
    endless = Loader(config)
    assert not hasattr(endless, "__len__")
    with pytest.raises(TypeError):
        len(endless)
    endless.close()
    for size in (1, 2, 4, 8):
        for rank in range(size):
            with Loader(finite, Topology(dp_rank=rank, dp_size=size)) as loader:
                assert len(loader) == -(-21 // (4 * size))
                assert len(list(loader)) == len(loader)


def test_rows_beyond_the_length_are_masked(finite: dict[str, Any]) -> None:
    with Loader(finite) as loader:
        last = list(loader)[-1]
    assert last.sequences == (20, 21, 22, 23)
    assert last["loss_mask"][1:].sum() == 0
    assert last["tokens"][1:].sum() == 0


def test_an_iterator_ends_with_its_pass_and_the_next_one_gives_the_next(finite: dict[str, Any]) -> None:
    with Loader(finite) as loader:
        iterator = iter(loader)
        passes = [one_pass(loader)]
        assert next(iterator, None) is not None  # made before, first used now: it gives the next pass
        rest = list(iterator)
        assert next(iterator, None) is None
        assert len(rest) == 5
        assert loader.consumed == 42
        passes.append(one_pass(loader))
    assert [len(rows) for rows in passes] == [21, 21]
    assert passes[0] != passes[1]


def test_restart_gives_the_same_rows_in_every_pass(finite: dict[str, Any]) -> None:
    with Loader({**finite, "restart": True}) as loader:
        passes = [one_pass(loader) for _ in range(3)]
        assert passes[0] == passes[1] == passes[2]
        digests = {stream_digest(loader.state_dict())}
    # Positions and digests go on: what was delivered three times isn't what was delivered once.
    with Loader({**finite, "restart": True}) as loader:
        one_pass(loader)
        assert loader.consumed == 21
        digests.add(stream_digest(loader.state_dict()))
    assert len(digests) == 2


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("lanes", [4, 32])
def test_passes_resume_wherever_they_were_stopped(finite: dict[str, Any], restart: bool, lanes: int) -> None:
    """Also at a pass's beginning, where most lanes haven't turned to it yet, and with lanes that have no row."""
    settings = {**finite, "restart": restart, "micro_batch_size": 1, "length": 9, "lanes": lanes}
    states, batches = [], []
    with Loader(settings) as loader:
        for _ in range(3):
            for batch in loader:
                batches.append(batch)
                states.append(loader.state_dict())
        end = loader.state_dict()
    assert end == states[-1]
    assert len(states) == 27
    for number, state in enumerate(states):
        with Loader(settings) as resumed:
            resumed.load_state_dict(state)
            assert resumed.state_dict() == state
            got: list[Batch] = []
            while len(got) < len(batches) - number - 1:
                got += list(resumed)
                if not got:
                    break
            assert rows(got) == rows(batches[number + 1 :])
            assert resumed.state_dict() == end


def test_an_iterator_that_ended_goes_on_from_a_state_in_mid_pass(finite: dict[str, Any]) -> None:
    with Loader(finite) as loader:
        iterator = iter(loader)
        first = [next(iterator) for _ in range(2)]
        state = loader.state_dict()
        rest = list(iterator)
        assert next(iterator, None) is None
        loader.load_state_dict(state)
        assert rows(list(iterator)) == rows(rest)
    assert len(first) + len(rest) == 6


def test_every_sample_once_in_a_counted_pass(config: dict[str, Any]) -> None:
    with Loader({**config, "length": "count"}) as loader:
        tokens = [token for batch in loader for row in batch["tokens"].tolist() for token in row if token]
        counted = len(loader)
        assert loader.consumed == counted
    with Loader({**config, "length": counted + 8}) as longer:
        report_after = list(longer)
    assert len(report_after) == counted + 8
    assert len(tokens) > 3000


def test_a_position_that_is_too_high_for_lanes_that_still_hold_documents_is_refused(tmp_path: Path) -> None:
    config = stream(tmp_path, settings={"length": 40})
    with Loader(config) as loader:
        take(loader, 6)
        state = loader.state_dict()
    for consumed in (7, 14, 22, 39):
        with Loader(config) as loader, pytest.raises(StateError, match="the state's parts are of different moments"):
            loader.load_state_dict({**state, "consumed": consumed})
