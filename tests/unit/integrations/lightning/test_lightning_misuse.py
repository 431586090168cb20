"""Uses of the module that would repeat or lose data: they go on where they should, or are refused."""

from __future__ import annotations

import gc
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from child_processes import shared_maps, workers_of
from test_lightning_resumes import Recorder, config, fit, make_trainer, windows
from zephon_lightning import ZephonCheckpoint, ZephonDataModule

from zephon import ConfigError, StateError, StoreError

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


def left() -> tuple[set[threading.Thread], int, set[int]]:
    # Tracebacks of other tests hold what they had.
    gc.collect()
    return set(threading.enumerate()), shared_maps(), workers_of(os.getpid())


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("engine", ["thread", "process"])
@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_an_exception_leaves_nothing_and_the_next_fit_goes_on(
    config: dict[str, Any], backend: str, engine: str
) -> None:
    config = {**config, "backend": {"kind": backend, "workers": 1, "prefetch": 2}, "engine": engine}
    module, model = ZephonDataModule(config, val_config={**config, "length": 8}, log=False), Recorder(fail_after=3)
    trainer = make_trainer(max_steps=6, validate=True)
    before = left()
    with pytest.raises(RuntimeError, match="asked to fail"):
        trainer.fit(model, datamodule=module)
    after = left()
    assert after[0] <= before[0]
    assert after[1:] == before[1:]
    # What is asked for meanwhile is of what was processed, and starts nothing.
    assert module.state_dict()["train"]["consumed"] == 6
    assert left()[1:] == before[1:]
    model.fail_after = None
    trainer.fit(model, datamodule=module)
    assert model.steps() == windows(0, 2, 2, 2, 2, 2, 2)


def test_a_position_lost_with_an_exception_is_told(config: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(*, consumed: int) -> dict[str, Any]:
        raise StoreError(f"the engine died at {consumed}; resume")

    module = ZephonDataModule(config, log=False)
    module.setup("fit")
    stream = module.train_dataloader()
    next(iter(stream))
    monkeypatch.setattr(stream.loader, "state_dict", dead)
    module.on_exception(RuntimeError())
    monkeypatch.undo()
    with pytest.raises(StoreError, match="the engine died at 0"):
        stream.part()
    module.teardown("fit")


def test_a_second_counting_callback_is_refused(config: dict[str, Any]) -> None:
    twice = make_trainer([ZephonCheckpoint(), ZephonCheckpoint()], max_steps=1)
    with pytest.raises(ConfigError, match="the Trainer has 2 ZephonCheckpoint callbacks") as raised:
        twice.fit(Recorder(), datamodule=ZephonDataModule(config, log=False))
    assert "\n" not in str(raised.value)
    model = Recorder()
    make_trainer([ZephonCheckpoint()], max_steps=2).fit(model, datamodule=ZephonDataModule(config, log=False))
    assert model.steps() == windows(0, 2, 2)


@pytest.mark.parametrize("batches", [2, 1.0])
def test_overfitting_a_stream_that_goes_on_is_refused(config: dict[str, Any], batches: float) -> None:
    trainer = make_trainer(max_epochs=2, overfit_batches=batches)
    with pytest.raises(ConfigError, match=r"overfit_batches=.* the stream would go on; leave it at 0"):
        trainer.fit(Recorder(), datamodule=ZephonDataModule(config, log=False))


def test_what_is_advised_for_overfitting_gives_the_same_rows_each_epoch(config: dict[str, Any]) -> None:
    model = Recorder()
    module = ZephonDataModule({**config, "length": 4, "restart": True}, log=False)
    seen: list[torch.Tensor] = []
    model.on_train_batch_end = lambda outputs, batch, batch_idx: seen.append(batch["tokens"])  # type: ignore[assignment]
    make_trainer(max_epochs=2).fit(model, datamodule=module)
    assert len(seen) == 4
    assert torch.equal(seen[0], seen[2])
    assert torch.equal(seen[1], seen[3])


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
