"""Host to device: NumPy arrays become device tensors, through pinned double buffers where that pays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from zephon.collate.batch import Batch

Array = NDArray[Any]
Build = Callable[[list[torch.Tensor]], Batch]
BUFFERS = 2
ALIGNMENT = 16
# The dtypes that host batches and their layouts have.
DTYPES = {np.dtype(np.uint8): torch.uint8, np.dtype(np.int32): torch.int32, np.dtype(np.int64): torch.int64}


class Uploader(Protocol):
    """Moves arrays to one device, in a thread of its own if need be, and hands what was built there to the trainer."""

    def build(self, arrays: Sequence[Array], build: Build) -> Batch: ...

    def hand_over(self, batch: Batch) -> Batch: ...


class HostUploader:
    """The CPU: tensors share the arrays' memory."""

    def build(self, arrays: Sequence[Array], build: Build) -> Batch:
        """Return what `build` makes of a tensor for each array, without a copy of those that are writable."""
        # torch warns of read-only arrays, such as views of bytes or of shared memory.
        return build([torch.from_numpy(array if array.flags.writeable else array.copy()) for array in arrays])

    def hand_over(self, batch: Batch) -> Batch:
        """Return the batch: it is there."""
        return batch


class CudaUploader:
    """A CUDA device: one asynchronous copy a micro-batch, from one of two pinned buffers, on a stream of its own.

    Builds in one thread at a time. Waits only if the copy before the last one is still under way.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._buffers = [torch.empty(0, dtype=torch.uint8, pin_memory=True) for _ in range(BUFFERS)]
        self._copied = [torch.cuda.Event() for _ in range(BUFFERS)]  # type: ignore[no-untyped-call]
        self._next = 0

    def build(self, arrays: Sequence[Array], build: Build) -> Batch:
        """Return what `build` makes of a device tensor for each array, under way on the side stream."""
        with torch.cuda.stream(self._stream):
            batch = build(self._upload(arrays))
            batch.built = self._stream.record_event()
        return batch

    def hand_over(self, batch: Batch) -> Batch:
        """Return the batch; the current stream waits until it is built, and owns its tensors from here on."""
        consumer = torch.cuda.current_stream(self._device)
        consumer.wait_event(batch.built)
        batch.built = None
        for value in batch.values():
            if isinstance(value, torch.Tensor):
                value.record_stream(consumer)
        return batch

    def _upload(self, arrays: Sequence[Array]) -> list[torch.Tensor]:
        """Return a device tensor for each array; the current stream must be the side stream."""
        offsets, size = places(arrays)
        slot, self._next = self._next, (self._next + 1) % BUFFERS
        self._copied[slot].synchronize()
        if self._buffers[slot].numel() < size:
            # Half as much again: micro-batches differ a little, and pinning memory is slow.
            self._buffers[slot] = torch.empty(size + size // 2, dtype=torch.uint8, pin_memory=True)
        pinned = self._buffers[slot][:size]
        fill(pinned.numpy(), arrays, offsets)
        there = torch.empty(size, dtype=torch.uint8, device=self._device)
        there.copy_(pinned, non_blocking=True)
        self._copied[slot].record(self._stream)
        return views(there, arrays, offsets)


def make_uploader(device: torch.device) -> Uploader:
    """Return the uploader for a device that `resolve_device` returned."""
    return CudaUploader(device) if device.type == "cuda" else HostUploader()


def places(arrays: Sequence[Array]) -> tuple[list[int], int]:
    """Return each array's offset in a common buffer, and the buffer's size, in bytes."""
    offsets = []
    size = 0
    for array in arrays:
        offsets.append(size)
        size += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    return offsets, size


def fill(buffer: NDArray[np.uint8], arrays: Sequence[Array], offsets: Sequence[int]) -> None:
    """Copy each array to its offset in a buffer."""
    for array, offset in zip(arrays, offsets, strict=True):
        buffer[offset : offset + array.nbytes].view(array.dtype).reshape(array.shape)[...] = array


def views(buffer: torch.Tensor, arrays: Sequence[Array], offsets: Sequence[int]) -> list[torch.Tensor]:
    """Return the parts of a filled uint8 buffer as tensors of the arrays' dtypes and shapes."""
    return [
        buffer[offset : offset + array.nbytes].view(DTYPES[array.dtype]).view(array.shape)
        for array, offset in zip(arrays, offsets, strict=True)
    ]
