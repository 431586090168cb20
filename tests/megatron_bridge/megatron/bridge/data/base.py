"""The contracts that Megatron-Bridge 0.6 has for a dataset configuration of one's own, with its names and defaults."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any


@dataclass(kw_only=True)
class DataloaderConfig:
    dataloader_type: Any = None
    num_workers: int = 2
    data_sharding: bool = True
    pin_memory: bool = True
    drop_last: bool = True
    persistent_workers: bool = True
    trust_remote_code: bool | None = None
    dataloader_save: str | None = None
    dataloader_load: str | None = None

    def finalize(self) -> None:
        if self.num_workers == 0:
            self.persistent_workers = False


@dataclass(frozen=True)
class DatasetBuildContext:
    train_samples: int
    valid_samples: int
    test_samples: int
    tokenizer: Any = None
    pg_collection: Any = None


@dataclass
class DatasetProvider(DataloaderConfig, ABC):
    @abstractmethod
    def build_datasets(self, context: DatasetBuildContext) -> tuple[Any, Any, Any]: ...
