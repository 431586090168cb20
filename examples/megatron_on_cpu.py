"""Makes megatron-core's schedules and model run on the CPU: for examples and tests only.

megatron-core asks for "cuda" tensors, streams and generators by name. Call `pretend_cpu_is_cuda` before megatron is
imported; from then on such requests are served by the CPU. The mcore optimizer works with clip_grad=0 only; the
distributed optimizer, context parallelism and THD attention don't work.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class _OnCpu(TorchFunctionMode):
    """Turns `device="cuda…"` into cpu, and Tensor.cuda into nothing."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        kwargs = dict(kwargs or {})
        if "cuda" in str(kwargs.get("device", "")):
            kwargs["device"] = "cpu"
        if func is torch.Tensor.to and len(args) > 1 and "cuda" in str(args[1]):
            args = (args[0], "cpu", *args[2:])
        return func(*args, **kwargs)


class _Stream:
    """A stream of which nobody asks more than to wait."""

    def wait_stream(self, stream: Any) -> None:
        """Return at once: the CPU is done."""

    def synchronize(self) -> None:
        """Return at once: the CPU is done."""


def pretend_cpu_is_cuda() -> None:
    """Serve megatron-core's requests for CUDA by the CPU, for the rest of the process."""
    if "megatron.core" in sys.modules:
        raise RuntimeError("pretend_cpu_is_cuda() must be called before megatron.core is imported")
    _OnCpu().__enter__()
    cuda: Any = torch.cuda
    cuda.current_device = lambda: "cpu"
    # A function each: torch._dynamo has rules by function, one a name.
    for name in ("set_device", "synchronize", "manual_seed"):
        setattr(cuda, name, _returning(None))
    for name in ("current_stream", "default_stream"):
        setattr(cuda, name, _returning(_Stream()))
    cuda.get_rng_state = lambda *_: torch.get_rng_state()
    cuda.stream = contextlib.nullcontext
    from megatron.core.tensor_parallel import random

    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)


def _returning(value: Any) -> Callable[..., Any]:
    def function(*_: Any, **__: Any) -> Any:
        return value

    return function
