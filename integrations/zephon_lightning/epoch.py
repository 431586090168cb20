"""A Trainer's counters after a resume, in micro-batches of this run: they decide where a global batch ends."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Trainer

from zephon_lightning.stream import Stream


def fit_epoch(trainer: Trainer, stream: Stream, *, began: int, stepped: bool, unit: int) -> None:
    """Set how much of the epoch is done, where it is counted in micro-batches of another size than when it was saved.

    `began` is the position at the epoch's beginning, `unit` the sequences of a micro-batch over all ranks, `stepped`
    whether the optimizer stepped at the position. Lightning counts micro-batches from the epoch's beginning to find
    the end of a global batch and of the epoch; a checkpoint has the count of its own run.
    """
    loop: Any = trainer.fit_loop.epoch_loop
    taken = stream.consumed - began
    done = -(-taken // unit)
    epoch = trainer.num_training_batches
    if hasattr(stream, "__len__") and not stream.rolls:
        left = -(-(stream.loader.plan["length"] - taken) // unit)
        done = len(stream) - left
    elif stepped:
        # The step that comes next is a whole one.
        done += -done % trainer.accumulate_grad_batches
    fit_loop: Any = trainer.fit_loop
    if taken and done >= epoch and not loop.restarted_on_train_batch_end and fit_loop.restarted_on_epoch_end:
        _begin_epoch(trainer, ended=False)
        return
    if taken and done >= epoch and fit_loop._restart_stage == "none":
        # Saved after a run that max_steps ended with an epoch: that one is over.
        _begin_epoch(trainer, ended=True)
        return
    if done > epoch:
        done = int(done % epoch)
    current = loop.batch_progress.current
    shift = done - current.processed
    current.ready += shift
    current.started += shift
    current.processed += shift
    current.completed += shift


def _begin_epoch(trainer: Trainer, *, ended: bool) -> None:
    """End the epoch that was saved at its very end, as Lightning itself does without max_steps; it may be `ended`.

    With max_steps it takes up the old epoch instead, trains one micro-batch more in it and steps on that alone.
    """
    loop: Any = trainer.fit_loop
    if not ended:
        loop.epoch_progress.increment_completed()
    loop._restarting = False
    loop.epoch_loop.restarting = False
    loop.reset_restart_stage()
    loop.epoch_loop.reset_restart_stage()
