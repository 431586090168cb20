"""The worker processes of a backend: started together, waited for together, gone together."""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import cast

from zephon.backends.launch import Child, launch

CLOSE_S = 1.0


class Worker:
    """A worker process and the tickets that it was given and hasn't answered, oldest first."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.tickets: deque[int] = deque()
        self.ready = False


class Crew:
    """Starts, replaces, waits for and ends `num_workers` workers.

    One thread uses it, under `lock`; `interrupt` may be called by any, without it.
    """

    def __init__(
        self, argument: bytes, *, num_workers: int, slots: int, slot_bytes: int, inherited: Sequence[int] = ()
    ) -> None:
        self.lock = threading.RLock()
        self.closed = False
        self.workers: list[Worker] = []
        self._argument = argument
        self._num_workers = num_workers
        self._slots = slots
        self._slot_bytes = slot_bytes
        self._inherited = inherited
        self.owner = os.getpid()
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        try:
            self.restart()
        except BaseException:
            self.close()
            raise

    def ready(self, timeout_s: float | None) -> list[Worker]:
        """Return the workers that have a message or have died, waiting so long for one (None: until one has)."""
        return [cast(Worker, key.data) for key, _ in self._selector.select(timeout_s) if key.data is not None]

    def replace(self, worker: Worker) -> str:
        """Start another worker in place of a dead one, and return how that ended."""
        self._selector.unregister(worker.child.receiver)
        self.workers.remove(worker)
        worker.child.close()
        if not self.closed:
            self._add()
        return worker.child.fate()

    def restart(self) -> None:
        """Have a full crew of fresh workers, whatever state this one is in."""
        self._dismiss()
        self._selector.close()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._woken, selectors.EVENT_READ)
        while len(self.workers) < self._num_workers and not self.closed:
            self._add()

    def interrupt(self) -> None:
        """Let whoever waits find the crew closed, and tell the workers to end; from any thread."""
        if os.getpid() != self.owner:
            return
        self.closed = True
        try:
            self._wake.send(b"\0")
        except OSError:
            # Closed already, so nobody waits.
            return
        for worker in tuple(self.workers):
            worker.child.hang_up()

    def close(self) -> None:
        """End all workers and free what they took; may be called again."""
        if os.getpid() != self.owner:
            # A copy in a forked process: the workers aren't its.
            return
        self.interrupt()
        self._dismiss()
        self._selector.close()
        self._wake.close()
        self._woken.close()

    def _dismiss(self) -> None:
        for worker in self.workers:
            worker.child.hang_up()
        deadline = time.monotonic() + CLOSE_S
        while self.workers:
            self.workers[-1].child.close(grace_s=max(0.0, deadline - time.monotonic()))
            self.workers.pop()

    def _add(self) -> None:
        child = launch(
            "zephon.backends.worker:work",
            self._argument,
            slots=self._slots,
            slot_bytes=self._slot_bytes,
            inherited=self._inherited,
        )
        worker = Worker(child)
        self.workers.append(worker)
        self._selector.register(child.receiver, selectors.EVENT_READ, worker)


def finish(crew: Crew) -> None:
    """Close a crew from any thread, or at the interpreter's end, whoever may be waiting for it."""
    if os.getpid() != crew.owner:
        return
    crew.interrupt()
    # A thread that waits in `take` is on its way out; it shouldn't find the selector closed under it.
    held = crew.lock.acquire(timeout=CLOSE_S)
    try:
        crew.close()
    finally:
        if held:
            crew.lock.release()
