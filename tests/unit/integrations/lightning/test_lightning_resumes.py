"""One process, one Trainer after another: what each optimizer step took, when sizes and epochs change at a resume."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint, OnExceptionCheckpoint
from lightning_scenarios import write_config
from zephon_lightning import ZephonDataModule

from zephon import StateError, Topology

pytestmark = pytest.mark.filterwarnings(
    # Of Lightning, about what is in the folder, or is not, and which of it is taken.
    # What it says of loaders, samplers and workers stays an error.
    "ignore:Checkpoint directory .* exists",
    "ignore:Be aware that when using `ckpt_path`",
    "ignore:You defined a `validation_step` but have no",
    "ignore:.* was called without a model",
    "ignore:.*there is no last checkpoint available",
    "ignore:`isinstance.treespec, LeafSpec.` is deprecated",
)
Taken = list[list[int]]


class Recorder(LightningModule):
    """Records the sequences of each micro-batch with the epoch and the steps before it; fails after `fail_after`."""

    def __init__(self, *, fail_after: int | None = None, skip: tuple[int, int] | None = None) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[tuple[int, int, tuple[int, ...]]] = []
        self.validated: list[tuple[bool, int]] = []
        self.fail_after, self.skip = fail_after, skip

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
        return -1 if self.skip == (self.current_epoch, batch_idx) else None

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.fail_after is not None and len(self.seen) >= self.fail_after:
            raise RuntimeError("asked to fail")
        self.seen.append((self.current_epoch, self.global_step, tuple(batch.sequences)))
        return self.layer(torch.ones(1, 1)).sum()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.validated.append((self.trainer.sanity_checking, self.global_step))

    def steps(self) -> Taken:
        """Return the sequences of each optimizer step."""
        taken: dict[tuple[int, int], list[int]] = {}
        for epoch, step, sequences in self.seen:
            taken.setdefault((epoch, step), []).extend(sequences)
        return list(taken.values())

    def epochs(self) -> list[list[int]]:
        """Return the sequences of each epoch."""
        taken: dict[int, list[int]] = {}
        for epoch, _, sequences in self.seen:
            taken.setdefault(epoch, []).extend(sequences)
        return list(taken.values())


def make_trainer(callbacks: Sequence[Callback] = (), *, validate: bool = False, **options: Any) -> Trainer:
    return Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=list(callbacks),
        enable_checkpointing=bool(callbacks),
        limit_val_batches=1.0 if validate else 0,
        **options,
    )


def fit(
    config: dict[str, Any],
    *,
    ckpt: Path | None = None,
    model: Recorder | None = None,
    module: ZephonDataModule | None = None,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> Recorder:
    """Train once and return what was seen."""
    model = model or Recorder()
    module = module or ZephonDataModule(config, log=False)
    trainer = make_trainer(callbacks, validate=module.val_config is not None, **options)
    trainer.fit(model, datamodule=module, ckpt_path=ckpt, weights_only=True)
    return model


def each_step(folder: Path, **options: Any) -> ModelCheckpoint:
    return ModelCheckpoint(dirpath=folder, filename="{step}", save_top_k=-1, **options)


def windows(start: int, *sizes: int, length: int | None = None) -> Taken:
    """Return windows of the stream of these sizes, one after another; of a pass's rows where it has a length."""
    taken = []
    for size in sizes:
        taken.append([n if length is None else n % length for n in range(start, start + size)])
        start += size
    return taken


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    return {**write_config(tmp_path), "backend": {"kind": "inline", "prefetch": 0}}


def test_accumulation_and_batch_size_may_change_at_a_resume(config: dict[str, Any], tmp_path: Path) -> None:
    first = fit(config, callbacks=[each_step(tmp_path, every_n_train_steps=1)], max_steps=1, accumulate_grad_batches=3)
    assert first.steps() == windows(0, 6)
    smaller = {**config, "micro_batch_size": 1}
    second = fit(smaller, ckpt=tmp_path / "step=1.ckpt", max_steps=3, accumulate_grad_batches=6)
    assert second.steps() == windows(6, 6, 6)
    third = fit(smaller, ckpt=tmp_path / "step=1.ckpt", max_steps=4, accumulate_grad_batches=4)
    assert third.steps() == windows(6, 4, 4, 4)


@pytest.mark.parametrize(("micro", "accumulate"), [(2, 5), (1, 10), (2, 4), (4, 3)])
def test_steps_of_a_pass_after_a_resume_at_its_end(
    config: dict[str, Any], tmp_path: Path, micro: int, accumulate: int
) -> None:
    config |= {"length": 24}
    saving = [each_step(tmp_path)]
    first = fit(config, callbacks=saving, max_steps=3, max_epochs=-1, accumulate_grad_batches=5)
    assert first.steps() == windows(0, 10, 10, 4)
    again = {**config, "micro_batch_size": micro}
    second = fit(again, ckpt=tmp_path / "step=3.ckpt", max_steps=6, max_epochs=-1, accumulate_grad_batches=accumulate)
    size = micro * accumulate
    sizes = [min(size, 24 - at) for at in range(0, 24, size)]
    assert second.steps()[: len(sizes)] == windows(24, *sizes, length=24)[:3]


def test_each_epoch_is_a_pass_with_validations_between(config: dict[str, Any]) -> None:
    module = ZephonDataModule(
        {**config, "length": 24}, val_config={**config, "length": 8, "seed": 9}, log=False, validation="fixed"
    )
    model = fit(config, module=module, max_epochs=3)
    assert model.epochs() == [list(range(24))] * 3
    assert [step for sanity, step in model.validated if not sanity] == [12] * 4 + [24] * 4 + [36] * 4


def test_epochs_shorter_than_a_pass_go_on_over_its_end(config: dict[str, Any], tmp_path: Path) -> None:
    config |= {"length": 24}
    model = fit(config, max_epochs=5, limit_train_batches=5)
    assert model.epochs() == windows(0, 10, 10, 10, 10, 10, length=24)


def test_resuming_where_a_short_epoch_of_an_endless_stream_ends(config: dict[str, Any], tmp_path: Path) -> None:
    options: dict[str, Any] = {"limit_train_batches": 4, "accumulate_grad_batches": 2}
    fit(config, callbacks=[each_step(tmp_path, every_n_train_steps=2)], max_epochs=1, **options)
    model = fit(config, ckpt=tmp_path / "step=2.ckpt", max_epochs=2, **options)
    assert model.steps() == windows(8, 4, 4)


def test_an_epoch_left_early_loses_nothing(config: dict[str, Any]) -> None:
    model = fit({**config, "length": 24}, model=Recorder(skip=(0, 2)), max_epochs=2)
    assert [n for _, _, rows in model.seen for n in rows][:24] == list(range(24))


def test_an_interrupted_rank_alone_saves_its_exact_position(config: dict[str, Any], tmp_path: Path) -> None:
    config |= {"micro_batch_size": 1}
    saving = [OnExceptionCheckpoint(tmp_path, filename="failed")]
    with pytest.raises(RuntimeError, match="asked to fail"):
        fit(config, model=Recorder(fail_after=3), callbacks=saving, max_steps=10)
    state = torch.load(tmp_path / "failed.ckpt", weights_only=True)["ZephonDataModule"]
    assert (state["ahead"], state["train"]["consumed"]) == (0, 3)
    # 3 sequences aren't a whole number for 2 ranks; nothing has to be replayed, so they go on all the same.
    module = ZephonDataModule(config, topology=Topology(dp_rank=1, dp_size=2), log=False)
    model = fit(config, ckpt=tmp_path / "failed.ckpt", module=module, max_steps=5)
    assert model.steps() == [[3], [5]]


def test_a_module_of_another_name_takes_up_the_state(config: dict[str, Any], tmp_path: Path) -> None:
    class Mine(ZephonDataModule):
        pass

    fit(config, callbacks=[each_step(tmp_path, every_n_train_steps=1)], max_steps=1)
    model = fit(config, ckpt=tmp_path / "step=1.ckpt", module=Mine(config, log=False), max_steps=2)
    assert model.steps() == windows(2, 2)


def test_a_checkpoint_without_the_stream_s_state_is_refused(config: dict[str, Any], tmp_path: Path) -> None:
    fit(config, callbacks=[each_step(tmp_path, every_n_train_steps=1)], max_steps=1)
    path = tmp_path / "step=1.ckpt"
    checkpoint = torch.load(path, weights_only=True)
    del checkpoint["ZephonDataModule"]
    torch.save(checkpoint, path)
    with pytest.raises(StateError, match="has no state of ZephonDataModule, and the stream would begin anew"):
        fit(config, ckpt=path, max_steps=2)


def test_validating_a_checkpoint_moves_no_later_fit(config: dict[str, Any], tmp_path: Path) -> None:
    fit(config, callbacks=[each_step(tmp_path, every_n_train_steps=1)], max_steps=1)
    module = ZephonDataModule(config, val_config={**config, "length": 8, "seed": 9}, log=False)
    trainer = make_trainer(validate=True, max_steps=2)
    model = Recorder()
    trainer.validate(model, datamodule=module, ckpt_path=tmp_path / "step=1.ckpt", weights_only=True)
    trainer.fit(model, datamodule=module)
    assert model.steps() == windows(0, 2, 2)


@pytest.mark.parametrize("cut", [1, 2, 3, 4])
@pytest.mark.parametrize("shorter", [{"length": 8}, {}])
def test_steps_after_a_checkpoint_saved_by_hand(
    config: dict[str, Any], tmp_path: Path, cut: int, shorter: dict[str, int]
) -> None:
    # Epochs of 4 micro-batches, so that max_steps may end the first run with an epoch.
    options: dict[str, Any] = {"accumulate_grad_batches": 2, **({} if shorter else {"limit_train_batches": 4})}
    trainer = make_trainer(max_steps=cut, **options)
    trainer.fit(Recorder(), datamodule=ZephonDataModule({**config, **shorter}, log=False))
    trainer.save_checkpoint(tmp_path / "hand.ckpt")
    model = fit({**config, **shorter}, ckpt=tmp_path / "hand.ckpt", max_steps=5, **options)
    assert model.steps() == windows(4 * cut, *[4] * (5 - cut), length=shorter.get("length"))
