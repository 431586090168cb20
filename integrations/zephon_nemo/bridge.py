"""Megatron-Bridge's dataset configuration for Zephon. Importing this module imports Megatron-Bridge."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
from megatron.bridge.data.base import DatasetBuildContext, DatasetProvider

from zephon import ConfigError
from zephon_nemo.streams import Data, Streams, build_streams, stream_of


class PackSize(msgspec.Struct, frozen=True, kw_only=True):
    """Of Bridge's PackedSequenceSpecs what its validation and its get_batch read."""

    packed_sequence_size: int
    pad_cu_seqlens: bool = False


@dataclass(kw_only=True)
class ZephonDatasetConfig(DatasetProvider):  # type: ignore[misc]
    """`cfg.dataset` of a recipe that trains on Zephon's stream.

    Settings are plain values, so that Bridge can write them with a checkpoint and take overrides of them.

    config, overrides        the training stream's configuration file, and what is set over it, as `a.b=value`;
                             a stream without a file has Bridge's sequence length and global batch size
    valid_config, valid_overrides, test_config, test_overrides   of the other streams; without both: there is none
    packed                   batches hold cu_seqlens for THD attention; needs micro_batch_size 1
    reset_position_ids       position ids start anew with each document (always so if packed)
    eod_mask_loss            no loss where the input is the token that ends a document
    begins_at                consumed samples at which the stream's first sequence is due
    dataloader_save, dataloader_load   folders of the stream's states; default: zephon below the checkpoints' folder
    seq_length               set by Bridge's model; don't
    """

    dataloader_type: Any = "external"
    config: str | None = None
    overrides: list[str] = field(default_factory=list)
    valid_config: str | None = None
    valid_overrides: list[str] = field(default_factory=list)
    test_config: str | None = None
    test_overrides: list[str] = field(default_factory=list)
    packed: bool = False
    reset_position_ids: bool = False
    eod_mask_loss: bool = False
    begins_at: int = 0
    seq_length: int | None = None

    # Bridge's GlobalState, from StreamCallback. No field: it isn't part of the configuration.
    trainer = None

    @property
    def enable_offline_packing(self) -> bool:
        """What Bridge looks at to know that pipeline stages in the middle take packed batches, too."""
        return self.packed

    @property
    def offline_packing_specs(self) -> PackSize | None:
        """The size of packed rows, as Bridge's validation reads it."""
        return PackSize(packed_sequence_size=self.seq_length or 1) if self.packed else None

    def finalize(self) -> None:
        """Check what can be checked without data. Raises ConfigError."""
        super().finalize()
        if self.dataloader_type != "external":
            raise ConfigError(
                f"dataset.dataloader_type={self.dataloader_type!r}; leave it external, as Zephon needs it"
            )
        if self.config is None and not self.overrides:
            raise ConfigError("dataset.config isn't set; set it to the training stream's configuration")
        if self.config is not None:
            stream_of(self.config, self.overrides)

    def build_datasets(self, context: DatasetBuildContext) -> tuple[Data, Data, Data]:
        """Return this rank's iterators, the first at the trainer's position; a collective over all ranks.

        Raises, on all ranks, ConfigError for settings that can't work together, and StateError where the trainer
        has consumed samples and the stream's state is missing, of another plan, or at another position.
        """
        if self.trainer is None:
            raise ConfigError(
                "the trainer's position isn't known; call zephon_nemo.pretrain, or add zephon_nemo.StreamCallback() "
                "to the callbacks of Megatron-Bridge's pretrain"
            )
        model = self.trainer.cfg.model
        self.seq_length = model.seq_length
        streams = Streams(
            train=(self.config, tuple(self.overrides)),
            valid=_pair(self.valid_config, self.valid_overrides),
            test=_pair(self.test_config, self.test_overrides),
            packed=self.packed,
            reset_position_ids=self.reset_position_ids,
            eod_mask_loss=self.eod_mask_loss,
            begins_at=self.begins_at,
            load=self.dataloader_load,
        )
        built = build_streams(streams, self.trainer, context.pg_collection)
        self.dataloader_save = self.dataloader_save or built.save
        return built.train, built.valid, built.test


def _pair(config: str | None, overrides: list[str]) -> tuple[str | None, tuple[str, ...]] | None:
    return (config, tuple(overrides)) if config is not None or overrides else None
