"""Stages for tests, picklable: pages made of numbers alone, and wrappers that make any stage fail, wait or die.

A wrapper takes a `build` and is itself one once its other arguments are bound:
`functools.partial(failing, build, block=3, text="...")`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

from zephon.backends.launch import OURS, SINGLE_THREADED
from zephon.backends.protocol import Build, Prepare
from zephon.errors import DataError
from zephon.page import Location, Order, Page, Wanted, page_of_pixels


def order(
    block: int, *, source: str = "web", samples: tuple[int, ...] = (0, 1, 2), wanted: tuple[Wanted, ...] = ()
) -> Order:
    """Return an order for a block of a shard that doesn't exist."""
    location = Location(f"/data/{source}.tar", "tar", 0, 1 << 20, -1, block * 64, 64)
    return Order(source, 0, block, location, samples, wanted)


def numbered(*, num_tokens: int = 5, mask: bool = False, meta: int = 0) -> Prepare:
    """Return a `prepare` of one document a sample, whose tokens count up from 1000 * block + sample.

    `mask` and `meta` add those columns. A sample with a number >= 64 is bad.
    """

    def prepare(order: Order) -> Page:
        good = [sample for sample in order.samples if sample < 64]
        tokens = np.concatenate(
            [np.arange(num_tokens, dtype=np.uint32) + np.uint32(1000 * order.block + sample) for sample in good]
            or [np.zeros(0, np.uint32)]
        )
        return Page(
            tokens=tokens,
            offsets=np.arange(len(good) + 1, dtype=np.int64) * num_tokens,
            counts=np.array([sample < 64 for sample in order.samples], np.int32),
            mask=(tokens % 2).astype(np.uint8) if mask else None,
            meta=np.full((len(good), meta), order.block, np.int64) if meta else None,
            bad=tuple((i, "no such sample") for i, sample in enumerate(order.samples) if sample >= 64),
            block_hash=(1 << 64) - 1 - order.block,
        )

    return prepare


def painted() -> Prepare:
    """Return a `prepare` of attachments alone: attachment n of sample s of block b is filled with b + s + n."""

    def prepare(order: Order) -> Page:
        pixels = tuple(
            np.full((each.frames, each.height, each.width, 3), (order.block + each.sample + each.number) % 256, "u1")
            for each in order.wanted
        )
        return page_of_pixels(pixels, bad=(), block_hash=order.block)

    return prepare


def failing(build: Build, *, block: int, error: Exception) -> Prepare:
    """Return a `prepare` that raises `error` at one block."""
    prepare = build()

    def wrapped(order: Order) -> Page:
        if order.block == block:
            raise error
        return prepare(order)

    return wrapped


def waiting(build: Build, *, seconds: float, block: int | None = None) -> Prepare:
    """Return a `prepare` that sleeps before one block, or each."""
    prepare = build()

    def wrapped(order: Order) -> Page:
        if block is None or order.block == block:
            time.sleep(seconds)
        return prepare(order)

    return wrapped


def dying(build: Build, *, block: int, times: int, folder: str) -> Prepare:
    """Return a `prepare` that kills its process at one block, the first `times` times; `folder` counts them."""
    prepare = build()

    def wrapped(order: Order) -> Page:
        if order.block == block:
            before = len(list(Path(folder).glob("death-*")))
            if before < times:
                Path(folder, f"death-{before}").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return prepare(order)

    return wrapped


def unbuildable(*, error: Exception) -> Prepare:
    """Raise `error` in place of returning a `prepare`."""
    raise error


def dying_at_start(*, status: int) -> Prepare:
    """End the process in place of returning a `prepare`."""
    os._exit(status)


def bad_shard(order: Order) -> Page:
    """Raise a DataError of a stage's own."""
    raise DataError(f"{order.location.path}, sample {order.samples[0]}: no member 'txt'")


def reporting() -> Prepare:
    """Return a `prepare` that tells of its process: a bad sample whose message has lines `name=value`."""

    def prepare(_: Order) -> Page:
        facts = {
            "pid": str(os.getpid()),
            "main": str(threading.current_thread() is threading.main_thread()),
            "torch": str("torch" in sys.modules),
            "multiprocessing": str("multiprocessing" in sys.modules),
            **{name: os.environ.get(name, "") for name in SINGLE_THREADED | OURS},
        }
        text = "\n".join(f"{name}={value}" for name, value in facts.items())
        none = np.zeros(0, np.uint32)
        return Page(none, np.zeros(1, np.int64), np.zeros(1, np.int32), None, None, ((0, text),), 0)

    return prepare
