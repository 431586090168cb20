"""Backends that behave badly within their contract: any order of finishing, and transient faults."""

from __future__ import annotations

from zephon.backends.inline import InlineBackend
from zephon.backends.protocol import Build
from zephon.errors import StoreError
from zephon.hashing import draw, key
from zephon.page import Order, Page


class ShuffledBackend:
    """Finishes orders in an order drawn from `seed`: `take` makes pages in that order until its own is made.

    `finished` lists the tickets in the order in which their pages were made. What making a page raised is
    raised by its own `take`, as everywhere.
    """

    def __init__(self, build: Build, *, workers: int = 1, seed: int = 0) -> None:
        self.finished: list[int] = []
        self._inner = InlineBackend(build, workers=workers)
        self._key = key(seed, "finish")
        self._draws = 0
        self._waiting: list[int] = []
        self._done: dict[int, Page | Exception] = {}

    def submit(self, order: Order) -> int:
        """Accept an order and return its ticket."""
        ticket = self._inner.submit(order)
        self._waiting.append(ticket)
        return ticket

    def take(self, ticket: int) -> Page:
        """Make pages in drawn order until the ticket's is made, and return that."""
        while ticket in self._waiting:
            self._finish(self._waiting.pop(draw(self._key, self._draws) % len(self._waiting)))
        if ticket not in self._done:
            # Raises what it must: closed, or not outstanding.
            return self._inner.take(ticket)
        result = self._done.pop(ticket)
        if isinstance(result, Exception):
            raise result
        return result

    def drop(self, ticket: int) -> None:
        """Give a ticket up; some dropped orders are run all the same, as by a worker that had begun."""
        if self._done.pop(ticket, None) is None and ticket in self._waiting:
            self._waiting.remove(ticket)
            self._draws += 1
            if draw(self._key, self._draws) % 2:
                self._finish(ticket)
                self._done.pop(ticket)
            else:
                self._inner.drop(ticket)

    def close(self) -> None:
        """Forget all orders and pages."""
        self._waiting.clear()
        self._done.clear()
        self._inner.close()

    def _finish(self, ticket: int) -> None:
        self._draws += 1
        self.finished.append(ticket)
        try:
            self._done[ticket] = self._inner.take(ticket)
        except Exception as error:  # noqa: BLE001 - raised by `take` of this ticket
            self._done[ticket] = error


class FlakyBackend:
    """Fails the `take` of every `every`-th ticket with a StoreError; the order can be submitted again."""

    def __init__(self, build: Build, *, workers: int = 1, every: int = 3) -> None:
        self._inner = InlineBackend(build, workers=workers)
        self._every = every

    def submit(self, order: Order) -> int:
        """Accept an order and return its ticket."""
        return self._inner.submit(order)

    def take(self, ticket: int) -> Page:
        """Return the ticket's page, or raise the fault."""
        if ticket % self._every == 0:
            self._inner.drop(ticket)
            raise StoreError(f"ticket {ticket}: connection reset, as every {self._every}th; submit the order again")
        return self._inner.take(ticket)

    def drop(self, ticket: int) -> None:
        """Give a ticket up."""
        self._inner.drop(ticket)

    def close(self) -> None:
        """Forget all orders."""
        self._inner.close()
