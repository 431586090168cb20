"""The functions of released wheels, Megatron-Bridge's and NeMo AutoModel's, on Zephon's data (`make wheels`)."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import automodel_scenarios
import bridge_scenarios
import pytest
from nemo_wheels import unpacked

from zephon import stream_digest


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("wheels")


def test_bridges_own_functions_take_save_and_resume(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = unpacked("megatron-bridge", folder)
    monkeypatch.setenv("BRIDGE_WHEEL", str(wheel))
    told, config = bridge_scenarios.run_chain(tmp_path)
    bridge_scenarios.check_chain(told, config, tmp_path)
    assert all(one["code"].startswith(str(wheel)) for one in told[0])
    # Bridge's restricted unpickler reads the file, too.
    path = wheel / "megatron" / "bridge" / "utils" / "safe_pickle.py"
    spec = importlib.util.spec_from_file_location("safe_pickle", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    saved = tmp_path / "zephon" / f"iter_{bridge_scenarios.STEPS:07d}" / "train_dataloader_dprank003.pt"
    state = module.energon_torch_load(str(saved))["dataloader_state_dict"]
    assert state["zephon"]["consumed"] == state["consumed_train_samples"] == 16
    assert len(stream_digest(state["zephon"])) >= 16


def test_automodels_own_loader_scheduler_and_files_take_save_and_resume(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheels = [unpacked(name, folder) for name in ("nemo-automodel", "torchdata")]
    monkeypatch.setenv("AUTOMODEL_WHEELS", os.pathsep.join(map(str, wheels)))
    monkeypatch.setenv("NEMO_ENABLE_USER_MODULES", "1")
    told, config = automodel_scenarios.run_chain(tmp_path)
    automodel_scenarios.check_chain(told, config)
    assert {one["loader"] for one in told[0]} == {"nemo_automodel.components.datasets.loader"}
