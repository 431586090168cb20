"""Uses of the module that would repeat or lose data: they go on where they should, or are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_lightning_resumes import Recorder, config, fit, make_trainer, windows
from zephon_lightning import ZephonDataModule

from zephon import ConfigError, StateError

__all__ = ["config"]
pytestmark = pytest.mark.filterwarnings(
    "ignore:Checkpoint directory .* exists",
    "ignore:`isinstance.treespec, LeafSpec.` is deprecated",
    "ignore:You defined a `validation_step` but have no",
    "ignore:You are using the `dataloader_iter` step flavor",
    "ignore:Found `dataloader_iter` argument",
)


class Fetcher(Recorder):
    def training_step(self, dataloader_iter: Any) -> torch.Tensor:  # type: ignore[override]
        next(dataloader_iter)
        return self.layer(torch.ones(1, 1)).sum()


def test_a_fit_after_an_exception_goes_on(config: dict[str, Any]) -> None:
    module, model = ZephonDataModule(config, log=False), Recorder(fail_after=3)
    trainer = make_trainer(max_steps=6)
    with pytest.raises(RuntimeError, match="asked to fail"):
        trainer.fit(model, datamodule=module)
    model.fail_after = None
    trainer.fit(model, datamodule=module)
    assert model.steps() == windows(0, 2, 2, 2, 2, 2, 2)


def test_a_state_loaded_by_hand_counts_after_a_validation(config: dict[str, Any]) -> None:
    first = ZephonDataModule(config, log=False)
    fit(config, module=first, max_steps=3)
    second = ZephonDataModule(config, val_config={**config, "length": 8, "seed": 9}, log=False)
    make_trainer(validate=True).validate(Recorder(), datamodule=second)
    second.load_state_dict(first.state_dict())
    assert fit(config, module=second, max_steps=2).steps() == windows(6, 2, 2)


def test_the_loader_without_the_module_is_refused(config: dict[str, Any]) -> None:
    module = ZephonDataModule(config, log=False)
    trainer = make_trainer(max_steps=3)
    trainer.fit(Recorder(), module.train_dataloader())
    with pytest.raises(StateError, match=r"call trainer\.fit\(model, datamodule=module\)"):
        module.state_dict()
    module.teardown("fit")


def test_steps_that_fetch_by_themselves_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="fetches by itself"):
        fit(config, model=Fetcher(), max_steps=2)


def test_continuing_validations_go_on_from_run_to_run(config: dict[str, Any]) -> None:
    class Seen(Recorder):
        def __init__(self) -> None:
            super().__init__()
            self.rows: list[int] = []

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.rows += batch.sequences

    model = Seen()
    module = ZephonDataModule(config, val_config={**config, "length": 12, "seed": 9}, validation="continue", log=False)
    for _ in range(3):
        trainer = make_trainer(validate=True)
        trainer.limit_val_batches = 2
        trainer.validate(model, datamodule=module, verbose=False)
    assert model.rows == list(range(12))


@pytest.mark.parametrize("gone", ["train", "ahead", "epoch_began"])
def test_a_state_that_lacks_something_is_refused(config: dict[str, Any], tmp_path: Path, gone: str) -> None:
    module = ZephonDataModule(config, log=False)
    fit(config, module=module, max_steps=1)
    state = module.state_dict()
    del state[gone]
    with pytest.raises(StateError, match="no state of ZephonDataModule"):
        ZephonDataModule(config).load_state_dict(state)
