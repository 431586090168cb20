"""A thread that makes micro-batches ahead of the one who takes them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from zephon.collate.host import HostBatch
from zephon.engine.engine import Counts, Engine
from zephon.errors import StoreError, ZephonError
from zephon.lanes.compiled import Snapshot
from zephon.lanes.state import LaneState

CLOSE_S = 30.0


class Finished(NamedTuple):
    """What a Produced became: `batch` in place of its host batch."""

    batch: Any
    position: int
    changes: dict[int, LaneState | Snapshot]
    counts: Counts


class Producer:
    """Runs an engine up to `prefetch` micro-batches ahead; with 0 it runs when asked, without a thread.

    Failures come out where the micro-batch would have.
    """

    def __init__(self, engine: Engine, finish: Callable[[HostBatch], Any], *, prefetch: int) -> None:
        self._engine = engine
        self._finish = finish
        self._prefetch = prefetch
        self._changed = threading.Condition()
        self._made: deque[Finished | BaseException | None] = deque()
        self._closed = False
        self._failure: ZephonError | None = None
        self._thread: threading.Thread | None = None
        if prefetch:
            self._thread = threading.Thread(target=self._run, name="zephon-engine", daemon=True)
            self._thread.start()

    def take(self) -> Finished | None:
        """Return the next micro-batch, waiting for it; None at the end of the pass."""
        if self._thread is None:
            return self._make()
        with self._changed:
            while not self._made and not self._closed:
                self._changed.wait()
            if self._closed:
                raise StoreError("the loader was closed while a batch was asked for; make a new loader")
            made = self._made[0]
            if isinstance(made, BaseException):
                raise made
            if made is not None:
                self._made.popleft()
                # Half of them at a time: to wake a thread for each takes as long as to make one.
                if len(self._made) <= self._prefetch // 2:
                    self._changed.notify_all()
            return made

    def close(self) -> None:
        """Stop the thread and drop what it made; waits for the page that it is waiting for."""
        with self._changed:
            self._closed = True
            self._made.clear()
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(CLOSE_S)
        self._engine.close()

    def _produce(self) -> Finished | None:
        produced = self._engine.produce()
        if produced is None:
            return None
        return Finished(self._finish(produced.host), produced.position, produced.changes, produced.counts)

    def _make(self) -> Finished | None:
        """Return the next micro-batch; after a failure raise that again, since rows may be gone with it."""
        if self._failure is not None:
            raise self._failure
        try:
            return self._produce()
        except ZephonError as error:
            self._failure = error
            raise
        except BaseException as error:
            self._failure = StoreError(
                f"the making of a batch was interrupted ({type(error).__name__}); "
                "load the loader's last state_dict() into it, or into a new one"
            )
            raise

    def _run(self) -> None:
        made: Finished | BaseException | None
        while True:
            try:
                made = self._produce()
            except BaseException as error:  # noqa: BLE001 - raised by take, in the thread that asked
                made = error
            with self._changed:
                if len(self._made) >= self._prefetch:
                    while len(self._made) > self._prefetch // 2 and not self._closed:
                        self._changed.wait()
                if self._closed:
                    return
                self._made.append(made)
                if len(self._made) == 1:
                    self._changed.notify_all()
            if made is None or isinstance(made, BaseException):
                return
