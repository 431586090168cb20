"""What torchtitan 0.3.0 asks of a loader, of our own writing: for tests where torchtitan isn't installed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import torch
from torch.distributed.checkpoint.stateful import Stateful


class BaseDataLoader(Stateful, ABC):
    """A loader that its Config builds: keyword-only, with slots, and with what the trainer knows as arguments."""

    @dataclass(kw_only=True, slots=True)
    class Config:
        dataset: str = ""
        dataset_path: str | None = None
        owner: ClassVar[Any] = None

        def build(self, **given: Any) -> Any:
            if {field.name for field in fields(self)} & set(given):
                raise ValueError("build() was given what belongs in the Config")
            return self.owner(config=replace(self), **given)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__slots__" not in cls.Config.__dict__:
            raise TypeError(f"{cls.__name__}.Config must use @dataclass(kw_only=True, slots=True)")
        cls.Config.owner = cls

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]: ...
