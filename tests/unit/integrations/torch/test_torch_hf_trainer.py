"""Hugging Face's Trainer in one process: what its model is fed is the stream, wherever it is stopped and saved."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from streams import samples, stream, take
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments
from zephon_torch.hf_trainer import TrainerStream, trainer_inputs

from zephon import ConfigError, Loader, StateError

ACCUMULATE = 3
SIZES = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


class Model(torch.nn.Module):
    """Keeps the tokens that it is fed."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.fed: list[list[int]] = []

    def forward(self, input_ids: Any, position_ids: Any, labels: Any, shift_labels: Any) -> dict[str, Any]:
        if self.training:
            self.fed += input_ids.tolist()
        return {"loss": self.weight.sum() * labels.ne(-100).sum()}


class Stop(TrainerCallback):
    """Ends the epoch, or the training, amid an optimizer step."""

    def __init__(self, substep: int, what: str) -> None:
        self.left, self.what = substep, what

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.left -= 1
        if not self.left:
            setattr(control, self.what, True)


class SaveAt(TrainerCallback):
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_save = state.global_step == 2


class Fed(Trainer):
    def get_train_dataloader(self) -> Any:
        return next(found for found in self.callback_handler.callbacks if isinstance(found, TrainerStream))


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    sources = {"web": samples("web", 200, masked=True)}
    return stream(tmp_path / "data", sources=sources, masked=True, settings={"micro_batch_size": 2})


def arguments(folder: Path, **more: Any) -> TrainingArguments:
    settings = {
        "max_steps": 4,
        "gradient_accumulation_steps": ACCUMULATE,
        "per_device_train_batch_size": 2,
        "ignore_data_skip": True,
        "save_steps": 2,
        "logging_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
    }
    return TrainingArguments(output_dir=str(folder), **{**settings, **more})


def train(
    config: Any, folder: Path, *, resume: Path | None = None, others: Any = (), eval_dataset: Any = None, **more: Any
) -> list[list[int]]:
    """Return the tokens of the rows that the model was fed."""
    model = Model()
    fed = TrainerStream(config)
    trainer = Fed(model=model, args=arguments(folder, **more), callbacks=[*others, fed], eval_dataset=eval_dataset)
    trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    fed.close()
    return model.fed


def by_hand(config: Any, start: int, stop: int) -> list[list[int]]:
    with Loader({**config, "micro_batch_size": 1}) as loader:
        return [batch["tokens"][0].tolist() for batch in take(loader, stop)][start:]


def position(checkpoint: Path) -> int:
    return int(json.loads((checkpoint / "trainer_state.json").read_text())["stateful_callbacks"]["zephon"]["consumed"])


@pytest.mark.parametrize("restore", [False, True])
def test_training_goes_on_after_the_last_step(config: Any, tmp_path: Path, restore: bool) -> None:
    step = 2 * ACCUMULATE
    assert train(config, tmp_path / "run") == by_hand(config, 0, 4 * step)
    assert [position(tmp_path / "run" / f"checkpoint-{n}") for n in (2, 4)] == [2 * step, 4 * step]
    # Another micro-batch size and accumulation; the Trainer may make callbacks anew that it knows.
    other = {"gradient_accumulation_steps": 1, "restore_callback_states_from_checkpoint": restore, "max_steps": 6}
    wide = {**config, "micro_batch_size": 4}
    found = train(wide, tmp_path / "run", resume=tmp_path / "run" / "checkpoint-2", **other)
    assert found == by_hand(config, 2 * step, 2 * step + 4 * 4)
    assert position(tmp_path / "run" / "checkpoint-6") == 2 * step + 4 * 4


def test_what_was_fetched_and_not_trained_on_comes_again(config: Any, tmp_path: Path) -> None:
    # The first step ends after one of its three micro-batches: the Trainer goes on in a new epoch.
    found = train(config, tmp_path / "run", others=[Stop(1, "should_epoch_stop")])
    assert found == by_hand(config, 0, 2 + 4 * 2 * ACCUMULATE)


def test_a_step_that_was_broken_off_is_not_in_the_position(config: Any, tmp_path: Path) -> None:
    # In the second step; gradients that weren't used aren't saved, so that their micro-batches come again.
    found = train(config, tmp_path / "run", others=[Stop(4, "should_training_stop")], save_strategy="epoch")
    assert len(found) == 2 * (ACCUMULATE + 2)
    assert position(tmp_path / "run" / "checkpoint-1") == 2 * ACCUMULATE


def test_the_best_model_s_checkpoint_has_its_position(config: Any, tmp_path: Path) -> None:
    rows = [{"input_ids": [1], "position_ids": [0], "labels": [1], "shift_labels": [1]}] * 2
    best = {"save_strategy": "best", "eval_strategy": "steps", "eval_steps": 1, "metric_for_best_model": "loss"}
    train(config, tmp_path / "run", eval_dataset=rows, **best)
    saved = sorted((tmp_path / "run").glob("checkpoint-*"))
    assert saved
    assert [position(folder) for folder in saved] == [2 * ACCUMULATE * int(folder.name[11:]) for folder in saved]


def test_checkpoints_without_a_position_are_refused(config: Any, tmp_path: Path) -> None:
    # The callback that asks for one comes behind the stream's.
    model = Model()
    trainer = Fed(
        model=model, args=arguments(tmp_path / "run", save_strategy="no"), callbacks=[TrainerStream(config), SaveAt()]
    )
    with pytest.raises(StateError, match="the checkpoint of step 2 lacks the stream's position, because a callback"):
        trainer.train()
    with pytest.raises(StateError, match="the checkpoint of step 2 has no state of the stream"):
        train(config, tmp_path / "run", resume=tmp_path / "run" / "checkpoint-2")


def test_settings_that_would_lose_data_are_refused(config: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="leave length out and set max_steps"):
        TrainerStream({**config, "length": 10})
    with pytest.raises(ConfigError, match=r"pass TrainingArguments\(ignore_data_skip=True\)"):
        train(config, tmp_path / "run", ignore_data_skip=False)


@pytest.mark.parametrize("mask", [False, True])
def test_a_model_of_transformers_keeps_documents_apart_and_labels_as_they_are(config: Any, mask: bool) -> None:
    torch.manual_seed(1)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=50_000, **SIZES)).eval()
    # As the Trainer sets it: with a cache, a model takes a row without a mask for one document.
    model.config.use_cache = False
    with Loader({**config, "attention_mask": mask, "micro_batch_size": 1}) as loader:
        batch = take(loader, 1)[0]
    starts = batch["cu_seqlens"].tolist()
    assert len(starts) > 2
    with torch.no_grad():
        given = model(**trainer_inputs(batch))
        logits = torch.cat([model(batch["tokens"][:, a:b]).logits for a, b in pairwise(starts)], 1)
    torch.testing.assert_close(given.logits, logits)
    losses = torch.nn.functional.cross_entropy(logits[0], batch["labels"][0], reduction="none")
    weights = batch["loss_mask"][0]
    torch.testing.assert_close(given.loss, (losses * weights).sum() / weights.sum())
