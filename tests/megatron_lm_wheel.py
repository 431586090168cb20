"""Imports Megatron-LM's own training loop on the CPU, from the wheel at $MEGATRON_LM: real code, nothing of it here.

The wheel of megatron-core 0.19 holds megatron.training. It is built for Python 3.12, whose only use there is
typing.override, and one module of it needs triton.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
import types
import typing
import warnings
from pathlib import Path
from typing import Any

NEEDS_TRITON = "megatron.core.transformer.moe.ops.paged_stash"


class WithoutTriton(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for the module that needs triton, which is never called here."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self) if name == NEEDS_TRITON else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: None  # type: ignore[method-assign]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class Idle:
    """A CUDA stream or event of which nobody asks more than to wait."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def wait_stream(self, stream: Any) -> None:
        pass

    def wait_event(self, event: Any) -> None:
        pass

    def synchronize(self) -> None:
        pass


class Properties:
    """What is read of a device's properties."""

    total_memory = 1 << 30
    name = "cpu"
    major, minor, multi_processor_count = 8, 0, 1


os.environ |= {"TORCHDYNAMO_DISABLE": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
sys.path[:0] = [os.environ["MEGATRON_LM"], str(Path(__file__).parents[1] / "examples")]
sys.meta_path.insert(0, WithoutTriton())
warnings.simplefilter("ignore")

import torch  # noqa: E402
import typing_extensions  # noqa: E402
from megatron_on_cpu import pretend_cpu_is_cuda  # noqa: E402

typing.override = typing_extensions.override  # type: ignore[attr-defined]
pretend_cpu_is_cuda()

import megatron.core.datasets.utils  # noqa: E402
import megatron.training.training  # noqa: E402

# Built with make, for Megatron-LM's own datasets only.
megatron.core.datasets.utils.compile_helpers = lambda: None
cuda: Any = torch.cuda
cuda.is_available = lambda: True
cuda.device_count = lambda: 8
cuda.Stream = cuda.Event = Idle
cuda.get_device_properties = lambda *_: Properties
cuda.get_device_name = lambda *_: "cpu"
cuda.memory_stats = lambda *_: {}
for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
    setattr(cuda, name, lambda *_: 0)
for name in ("reset_peak_memory_stats", "empty_cache", "set_stream"):
    setattr(cuda, name, lambda *_: None)
