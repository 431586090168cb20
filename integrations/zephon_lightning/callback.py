"""The callback that tells the data module what the trainer processed, and logs what it was fed."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loops.fetchers import _DataLoaderIterDataFetcher

from zephon import ConfigError, StateError
from zephon_lightning.epoch import fit_epoch
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
        if isinstance(trainer.fit_loop._data_fetcher, _DataLoaderIterDataFetcher):
            raise ConfigError(
                "training_step(dataloader_iter) fetches by itself, so that nobody counts what was trained; take "
                "training_step(batch, batch_idx)"
            )
        if stream.generation:
            fit_epoch(trainer, stream, began=module.epoch_began, stepped=module.stepped, unit=module.unit)
        if stream.generation and not hasattr(stream, "__len__"):
            # It may have fetched a micro-batch before the state was loaded.
            iter(trainer.fit_loop._data_fetcher)  # type: ignore[arg-type]
        module.remember()
        self._metrics.start(stream.loader)

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Load the state that a data module of another class name saved; Lightning looks for this one's name alone.

        Raises StateError where a fit would begin the stream anew because the checkpoint has no state.
        """
        module = _module_of(trainer)
        if module is None or trainer.state.fn != "fit" or type(module).__qualname__ in checkpoint:
            return
        found = [value for value in checkpoint.values() if isinstance(value, dict) and {"train", "ahead"} <= set(value)]
        if len(found) != 1:
            raise StateError(
                f"the checkpoint has no state of {type(module).__qualname__}, and the stream would begin anew; "
                "resume from one that was saved with it, or load the weights alone"
            )
        module.load_state_dict(found[0])

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Note where the epoch begins."""
        module = _module_of(trainer)
        if batch_idx == 0 and module is not None and module.train_stream is not None:
            module.epoch_began = module.train_stream.consumed

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count the micro-batch, and log."""
        module = _module_of(trainer)
        if module is None or module.train_stream is None:
            return
        module.train_stream.processed()
        module.stepped = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
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
        stream = None if module is None else module.val_stream
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
    # At the end of a global batch: global_step stays the same while gradients are accumulated.
    return bool(every) and trainer.global_step % every == 0 and not trainer.fit_loop._should_accumulate()
