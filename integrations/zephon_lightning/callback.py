"""The callback that tells the data module what the trainer processed, and logs what it was fed."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from zephon_lightning.metrics import Metrics
from zephon_lightning.stream import Stream


class ZephonCheckpoint(Callback):
    """Keeps a ZephonDataModule's position at the micro-batches that were processed; the module inserts it itself.

    It has to come before every callback that saves checkpoints, so Trainer(callbacks=[…]) needs it only where
    another callback insists on being first.
    """

    def __init__(self) -> None:
        self._metrics = Metrics()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Bring loop and fetcher to the position of the state, if one was loaded."""
        module = _module_of(trainer)
        if module is None or module.train_stream is None:
            return
        stream: Stream = module.train_stream
        _fit_progress(trainer, module, stream)
        if stream.generation and not hasattr(stream, "__len__"):
            # It may have fetched a micro-batch before the state was loaded.
            iter(trainer.fit_loop._data_fetcher)  # type: ignore[arg-type]
        module.remember()
        self._metrics.start(stream.loader)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the micro-batch, and log."""
        module = _module_of(trainer)
        if module is None or module.train_stream is None:
            return
        module.train_stream.processed()
        if module.log_metrics and trainer.logger is not None and _logs_now(trainer):
            rate, others = self._metrics.since(module.train_stream.loader)
            pl_module.log_dict(rate, prog_bar=True, on_step=True, on_epoch=False, batch_size=1)
            pl_module.log_dict(others, on_step=True, on_epoch=False, batch_size=1)

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Count a micro-batch of a validation stream that goes on from run to run."""
        module = _module_of(trainer)
        stream = None if module is None else module.val_dataloader()
        if isinstance(stream, Stream) and not trainer.sanity_checking:
            stream.processed()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the last state, for checkpoints that are asked for after the run."""
        module = _module_of(trainer)
        if module is not None and not trainer.interrupted:
            module.remember()


def _module_of(trainer: Trainer) -> Any:
    """Return the trainer's ZephonDataModule, if it has one."""
    from zephon_lightning.data_module import ZephonDataModule

    module = trainer.datamodule  # type: ignore[attr-defined]
    return module if isinstance(module, ZephonDataModule) else None


def _logs_now(trainer: Trainer) -> bool:
    every = trainer.log_every_n_steps  # type: ignore[attr-defined]
    return bool(every) and trainer.global_step % every == 0


def _fit_progress(trainer: Trainer, module: Any, stream: Stream) -> None:
    """Count the epoch's micro-batches in those of this run, where they were larger or smaller before.

    A finite stream's epoch ends after len(loader) micro-batches, and a checkpoint says how many of *its* are done.
    """
    if not stream.generation or not hasattr(stream, "__len__"):
        return
    into = stream.consumed % stream.loader.plan["length"]
    done = into // module.unit
    progress: Any = trainer.fit_loop.epoch_loop.batch_progress.current
    if into and progress.ready != done:
        progress.ready = progress.started = progress.processed = progress.completed = done
