"""Loaders from checkpoints of torch.distributed.checkpoint: what doesn't fit is told before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from streams import samples, stream, take
from zephon_torch import LoaderState, load_loader

from zephon import Loader, StateError, StoreError, Topology, ZephonError

# DCP's own, about tensors' storage and about having no process group.
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore:torch.distributed is:UserWarning"),
]


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    settings = {"lanes": 4, "micro_batch_size": 2}
    return stream(tmp_path / "data", sources={"web": samples("web", 200)}, settings=settings)


@pytest.fixture
def saved(config: dict[str, Any], tmp_path: Path) -> Path:
    """Return a checkpoint of a model and of a loader at consumed=6, with 4 lanes."""
    with Loader(config) as loader:
        take(loader, 3)
        states = {"data": LoaderState(loader), "model": {"weight": torch.zeros(2)}}
        dcp.save(states, checkpoint_id=tmp_path / "saved")
    return tmp_path / "saved"


def refused(config: Any, checkpoint: Any, key: str = "data") -> ZephonError:
    """Return why a loader can't go on from a checkpoint; it then stays as it was."""
    with Loader(config) as loader:
        with pytest.raises(ZephonError) as caught:
            load_loader(loader, checkpoint, key=key)
        assert loader.consumed == 0
        next(iter(loader))
    return caught.value


@pytest.mark.parametrize("topology", [Topology(), Topology(dp_rank=1, dp_size=2), Topology(dp_rank=5, dp_size=8)])
def test_any_rank_goes_on_with_its_lanes(config: dict[str, Any], saved: Path, topology: Topology) -> None:
    with Loader({**config, "micro_batch_size": 1}, topology) as loader:
        load_loader(loader, saved)
        assert loader.consumed == 6
        first = next(iter(loader))
    with Loader({**config, "micro_batch_size": 1}) as reference:
        expected = take(reference, 20)
    (number,) = first.sequences
    assert number == next(n for n in range(6, 20) if n % topology.dp_size == topology.dp_rank)
    assert torch.equal(first["tokens"], expected[number]["tokens"])


def test_lanes_are_taken_from_the_checkpoint_where_nothing_is_said(config: dict[str, Any], saved: Path) -> None:
    unsaid = {**config, "lanes": None, "global_batch_size": 2}
    with Loader(unsaid) as loader:
        load_loader(loader, dcp.FileSystemReader(saved))
        assert loader.plan["lanes"] == 4
        assert next(iter(loader)).sequences == (6, 7)


@pytest.mark.parametrize("lanes", [2, 12])
def test_another_number_of_lanes_is_named(config: dict[str, Any], saved: Path, lanes: int) -> None:
    error = refused({**config, "lanes": lanes}, saved)
    assert isinstance(error, StateError)
    assert f"holds 4 lanes under 'data', and the configuration says lanes={lanes}; set lanes=4" in str(error)


def test_another_plan_is_named(config: dict[str, Any], saved: Path) -> None:
    error = refused({**config, "seed": 77}, saved)
    assert isinstance(error, StateError)
    assert "seed" in str(error)


def test_checkpoints_without_a_loader_are_named(config: dict[str, Any], saved: Path, tmp_path: Path) -> None:
    error = refused(config, saved, key="dataloader")
    assert isinstance(error, StateError)
    assert "no whole state of a Zephon loader under 'dataloader' (its keys: data, model)" in str(error)
    error = refused(config, tmp_path / "nowhere")
    assert isinstance(error, StoreError)
    assert "no checkpoint of torch.distributed.checkpoint at" in str(error)


def test_checkpoints_of_some_of_the_ranks_are_named(config: dict[str, Any], tmp_path: Path) -> None:
    with Loader(config, Topology(dp_rank=1, dp_size=2)) as loader:
        dcp.save({"data": LoaderState(loader)}, checkpoint_id=tmp_path / "half")
    assert "no whole state of a Zephon loader under 'data' (its keys: data)" in str(refused(config, tmp_path / "half"))
