"""The data module by itself: lanes for torch.distributed.checkpoint, figures, and settings that can't work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch.distributed.checkpoint as dcp
from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities.model_helpers import is_overridden
from lightning_scenarios import write_config
from zephon_lightning import ZephonDataModule
from zephon_lightning.metrics import Metrics

from zephon import ConfigError, Loader, StateError, Topology


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    return {**write_config(tmp_path), "backend": {"kind": "inline", "prefetch": 0}}


def module_of(config: dict[str, Any], rank: int, ranks: int) -> ZephonDataModule:
    module = ZephonDataModule(config, topology=Topology(dp_rank=rank, dp_size=ranks), log=False)
    module.setup("fit")
    return module


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized")
def test_lanes_go_through_distributed_checkpoint(config: dict[str, Any], tmp_path: Path) -> None:
    one = module_of(config, 0, 1)
    stream = one.train_dataloader()
    batches = iter(stream)
    for _ in range(3):
        next(batches)
        stream.processed()
    # Fetched ahead, as a trainer does; not what is saved.
    next(batches)
    dcp.save({"stream": one.stateful}, checkpoint_id=tmp_path / "saved")
    one.teardown("fit")
    for ranks in (1, 2, 4):
        for rank in range(ranks):
            again = module_of(config, rank, ranks)
            # An iterator that had begun notices.
            batches = iter(again.train_dataloader())
            next(batches)
            dcp.load({"stream": again.stateful}, checkpoint_id=tmp_path / "saved")
            assert again.epoch_began == 6
            assert next(batches).sequences == tuple(n for n in range(6, 20) if n % ranks == rank)[:2]
            again.teardown("fit")


def test_the_stateful_needs_a_stream(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="no training stream yet"):
        _ = ZephonDataModule(config).stateful


def test_figures_are_of_the_interval(config: dict[str, Any]) -> None:
    with Loader(config) as loader:
        batches = iter(loader)
        next(batches)
        metrics = Metrics()
        metrics.start(loader)
        before = loader.report()
        for _ in range(4):
            next(batches)
        rate, others = metrics.since(loader)
        after = loader.report()
        _, again = metrics.since(loader)
    assert rate["zephon/tokens_per_s"] > 0
    tokens = after["tokens"] - before["tokens"]
    assert others["zephon/packing_efficiency"] == tokens / (4 * 2 * 33)
    assert others["zephon/mixture/web"] + others["zephon/mixture/code"] == pytest.approx(1)
    assert others["zephon/mixture/web"] == (after["delivered"]["web"] - before["delivered"]["web"]) / tokens
    for name, (lowest, highest) in after["epochs"].items():
        assert (others[f"zephon/epoch/{name}"], others[f"zephon/epoch_max/{name}"]) == (lowest, highest)
        # They are read from every lane's state, so not each time.
        assert f"zephon/epoch/{name}" not in again


def test_loaders_that_were_not_asked_for_are_not_overridden(config: dict[str, Any]) -> None:
    plain = ZephonDataModule(config)
    assert not is_overridden("val_dataloader", plain, LightningDataModule)
    assert not is_overridden("test_dataloader", plain, LightningDataModule)
    both = ZephonDataModule(config, val_config={**config, "length": 8}, test_config={**config, "length": 8})
    assert is_overridden("val_dataloader", both, LightningDataModule)
    assert is_overridden("test_dataloader", both, LightningDataModule)


def test_settings_that_cannot_work_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="val_config has no length, so a validation run would never end"):
        ZephonDataModule(config, val_config=config)
    with pytest.raises(ConfigError, match="validation='often' is unknown"):
        ZephonDataModule(config, validation="often")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="topology is a function of the Trainer, and there is none"):
        ZephonDataModule(config, topology=lambda trainer: Topology()).setup("fit")
    with pytest.raises(StateError, match="no state of ZephonDataModule"):
        ZephonDataModule(config).load_state_dict({"other": 1})
