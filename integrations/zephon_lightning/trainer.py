"""What a data module asks of its Trainer: one callback that counts, in front, and epochs that aren't cut to overfit."""

from __future__ import annotations

from typing import Any

from zephon import ConfigError
from zephon_lightning.callback import ZephonCheckpoint


def insert_callback(trainer: Any) -> None:
    """Put the callback first: a checkpoint that a later one writes has to count the micro-batch just processed."""
    if trainer is not None and not _counting(trainer):
        trainer.callbacks.insert(0, ZephonCheckpoint())


def check_trainer(trainer: Any, stage: str) -> None:
    """Raise ConfigError for a Trainer that would count wrongly, or ask for what a stream doesn't do."""
    if trainer is None:
        return
    counting = _counting(trainer)
    if counting > 1:
        raise ConfigError(
            f"the Trainer has {counting} ZephonCheckpoint callbacks, and each would count every micro-batch; pass one "
            "or none: ZephonDataModule inserts it"
        )
    if stage == "fit" and trainer.overfit_batches:
        # Its epochs would take one part of the stream after another, so that nothing is trained on twice.
        raise ConfigError(
            f"overfit_batches={trainer.overfit_batches} isn't served by ZephonDataModule: the stream would go on; "
            "leave it at 0, and set length to the sequences to overfit, and restart: true, in config"
        )


def _counting(trainer: Any) -> int:
    return sum(isinstance(item, ZephonCheckpoint) for item in trainer.callbacks)
