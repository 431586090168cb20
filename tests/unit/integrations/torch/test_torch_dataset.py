"""The dataset face: one stream, however many workers a DataLoader has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_scenarios import write_config
from torch.utils.data import DataLoader
from zephon_torch import StreamDataset

from zephon import Loader, StateError, Topology

RANK = Topology(dp_rank=1, dp_size=2)


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    return {**write_config(tmp_path), "backend": {"kind": "inline", "prefetch": 0}}


def tokens(batches: Any, count: int) -> list[list[list[int]]]:
    return [batch["tokens"].tolist() for _, batch in zip(range(count), batches, strict=False)]


def by_hand(config: dict[str, Any], count: int, start: int = 0) -> list[list[list[int]]]:
    with Loader(config, RANK) as loader:
        rows: list[list[list[int]]] = []
        while len(rows) < start + count:
            rows += tokens(loader, start + count - len(rows))
        return rows[start:]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_the_stream_comes_once_however_many_workers(config: dict[str, Any], workers: int) -> None:
    dataset = StreamDataset(config, RANK)
    loader = DataLoader(dataset, batch_size=None, num_workers=workers)
    assert not hasattr(dataset, "__len__")
    assert tokens(loader, 5) == by_hand(config, 5)
    dataset.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_passes_follow_each_other(config: dict[str, Any], workers: int) -> None:
    finite = {**config, "length": 10}
    dataset = StreamDataset(finite, RANK)
    loader = DataLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0)
    assert len(loader) == 3
    passes = [tokens(loader, 9) for _ in range(3)]
    assert [len(given) for given in passes] == [3, 3, 3]
    assert [*passes[0], *passes[1], *passes[2]] == by_hand(finite, 9)
    dataset.close()


def test_a_new_worker_doesn_t_repeat_what_an_earlier_one_gave(config: dict[str, Any]) -> None:
    loader = DataLoader(StreamDataset({**config, "length": 10}, RANK), batch_size=None, num_workers=1)
    assert len(list(loader)) == 3
    with pytest.raises(StateError, match="another process gave the stream up to consumed=10, and this one would begin"):
        list(loader)


def test_states_go_on_in_a_worker_or_without(config: dict[str, Any]) -> None:
    first = StreamDataset(config, RANK)
    tokens(first, 3)
    state = first.state_dict()
    first.close()
    for workers in (0, 1):
        second = StreamDataset(config, RANK)
        second.load_state_dict(state)
        # Also from a process that has a loader already.
        if workers:
            assert second.loader.consumed == state["consumed"] == 12
        assert tokens(DataLoader(second, batch_size=None, num_workers=workers), 4) == by_hand(config, 4, start=3)
        second.close()


def test_late_states_move_iterators_that_exist(config: dict[str, Any]) -> None:
    dataset = StreamDataset(config, RANK)
    iterator = iter(dataset)
    state = dataset.state_dict()
    next(iterator)
    dataset.load_state_dict(state)
    assert next(iterator)["tokens"].tolist() == by_hand(config, 1)[0]
    dataset.close()


def test_micro_batches_come_whole_and_can_be_pinned_or_moved(config: dict[str, Any]) -> None:
    dataset = StreamDataset(config, RANK)
    batch = next(iter(DataLoader(dataset, batch_size=None, num_workers=1)))
    assert batch["tokens"].shape == (2, 32)
    assert batch["tokens"].dtype == torch.int64
    assert batch.sequences == (1, 3)
    dataset.close()


def test_the_trainer_s_process_doesn_t_know_a_worker_s_position(config: dict[str, Any]) -> None:
    dataset = StreamDataset(config, RANK)
    tokens(DataLoader(dataset, batch_size=None, num_workers=1), 2)
    with pytest.raises(StateError, match="another process gave the stream up to consumed="):
        dataset.state_dict()


def test_a_worker_doesn_t_go_on_after_a_loop_that_was_left_early(config: dict[str, Any]) -> None:
    loader = DataLoader(StreamDataset(config, RANK), batch_size=None, num_workers=1, persistent_workers=True)
    tokens(loader, 2)
    with pytest.raises(StateError, match="the last loop over the DataLoader was left early"):
        tokens(loader, 2)


def test_a_worker_that_started_before_a_state_was_loaded_says_so(config: dict[str, Any]) -> None:
    finite = {**config, "length": 12}
    dataset = StreamDataset(finite, RANK)
    loader = DataLoader(dataset, batch_size=None, num_workers=1, persistent_workers=True)
    assert len(list(loader)) == 3
    with Loader(finite, RANK) as by_itself:
        next(iter(by_itself))
        dataset.load_state_dict(by_itself.state_dict())
    with pytest.raises(StateError, match="a state was loaded into the dataset after the DataLoader's worker had"):
        list(loader)


def test_two_workers_at_a_time_don_t_both_give_the_stream(config: dict[str, Any]) -> None:
    loader = DataLoader(StreamDataset(config, RANK), batch_size=None, num_workers=1, prefetch_factor=1)
    first = iter(loader)
    next(first)
    with pytest.raises(StateError, match="another process gave the stream"):
        tokens(loader, 3)


@pytest.mark.parametrize("state", [{"x": 1}, {"version": 1, "plan": {}, "consumed": "7", "lanes": {}}])
def test_what_is_no_state_is_refused(config: dict[str, Any], state: dict[str, Any]) -> None:
    with pytest.raises(StateError):
        StreamDataset(config, RANK).load_state_dict(state)
