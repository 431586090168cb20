"""Threads: for stages that release the interpreter lock, as fast tokenizers and decoders do."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque

from zephon.backends.failures import CLOSED, failed_build, failed_order
from zephon.backends.protocol import Build, Prepare
from zephon.errors import StoreError, ZephonError
from zephon.page import Order, Page

CLOSE_S = 10.0


class Board:
    """What the backend and its threads share, so that the threads don't keep the backend alive."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.queue: deque[tuple[int, Order]] = deque()
        self.waited: set[int] = set()
        self.done: dict[int, Page | ZephonError] = {}
        self.broken: ZephonError | None = None
        self.closed = False
        self.building = threading.Lock()
        self.prepare: Prepare | None = None

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.queue.clear()
            self.waited.clear()
            self.done.clear()
            self.changed.notify_all()

    def next(self) -> tuple[int, Order] | None:
        """Return the oldest order, waiting for one; None once closed."""
        with self.changed:
            while not self.queue and not self.closed:
                self.changed.wait()
            return None if self.closed else self.queue.popleft()

    def hurry(self, ticket: int) -> None:
        """Move an order that somebody waits for before those that are only ordered ahead; hold `changed`."""
        for place, entry in enumerate(self.queue):
            if entry[0] == ticket:
                del self.queue[place]
                self.queue.appendleft(entry)
                return

    def settle(self, ticket: int, result: Page | ZephonError) -> None:
        """Publish what came of an order, unless its ticket was dropped."""
        with self.changed:
            if ticket in self.waited:
                self.done[ticket] = result
                self.changed.notify_all()

    def fail(self, error: ZephonError) -> None:
        """Let every `take` raise an error that isn't one order's."""
        with self.changed:
            self.broken = error
            self.changed.notify_all()


class ThreadsBackend:
    """Runs orders in `workers` threads: what somebody waits for first, then the oldest."""

    def __init__(self, build: Build, *, workers: int) -> None:
        self._board = Board()
        self._tickets = 0
        self._threads = [
            threading.Thread(target=_work, args=(self._board, build), name=f"zephon-prepare-{number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()
        # Only told, not joined: this may run in one of the threads.
        self._finalizer = weakref.finalize(self, self._board.close)

    def submit(self, order: Order) -> int:
        """Queue an order and return its ticket."""
        board = self._board
        with board.changed:
            if board.closed:
                raise StoreError(CLOSED)
            self._tickets += 1
            board.waited.add(self._tickets)
            board.queue.append((self._tickets, order))
            board.changed.notify()
            return self._tickets

    def take(self, ticket: int) -> Page:
        """Return a ticket's page, waiting for it; raises what making it raised."""
        board = self._board
        with board.changed:
            if not board.closed and ticket not in board.waited:
                raise LookupError(f"ticket {ticket} is not outstanding: taken, dropped or never given")
            board.hurry(ticket)
            while ticket not in board.done:
                if board.closed:
                    raise StoreError(CLOSED)
                if board.broken is not None:
                    raise board.broken
                board.changed.wait()
            board.waited.discard(ticket)
            result = board.done.pop(ticket)
        if isinstance(result, ZephonError):
            raise result
        return result

    def drop(self, ticket: int) -> None:
        """Give a ticket up; an order that no thread has begun is never run."""
        board = self._board
        with board.changed:
            board.waited.discard(ticket)
            board.done.pop(ticket, None)

    def close(self) -> None:
        """Wake a `take` that waits, and end the threads; what they are at is finished first, for at most 10 s."""
        self._finalizer.detach()
        self._board.close()
        deadline = time.monotonic() + CLOSE_S
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))


def _work(board: Board, build: Build) -> None:
    try:
        # One for all threads: a tokenizer takes seconds to load.
        with board.building:
            if board.prepare is None and board.broken is None:
                board.prepare = build()
            prepare = board.prepare
        if prepare is None:
            return
    except BaseException as error:  # noqa: BLE001 - raised by `take`, where somebody sees it
        board.fail(failed_build(error))
        return
    while (entry := board.next()) is not None:
        ticket, order = entry
        with board.changed:
            dropped = ticket not in board.waited
        if dropped:
            continue
        result: Page | ZephonError
        try:
            result = prepare(order)
        except BaseException as error:  # noqa: BLE001 - raised by `take` of this ticket
            result = failed_order(error, order)
        board.settle(ticket, result)
        # Else the page, the error and its frames live until the next order comes.
        del result, entry, order
