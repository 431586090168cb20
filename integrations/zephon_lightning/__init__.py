"""Zephon for Lightning: `ZephonDataModule` gives a Trainer the stream, and its checkpoints the position in it."""

from __future__ import annotations

from zephon_lightning.callback import ZephonCheckpoint
from zephon_lightning.data_module import ZephonDataModule

__all__ = ["ZephonCheckpoint", "ZephonDataModule"]
