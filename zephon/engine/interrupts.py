"""Ctrl-C in the middle of a message would leave two processes out of step: it waits until the message is whole."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Let SIGINT's handler run after the block, which must not wait. Does nothing outside the main thread."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came: list[FrameType | None] = []
    try:
        signal.signal(signal.SIGINT, lambda _, frame: came.append(frame))
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(signal.SIGINT, came[0])
