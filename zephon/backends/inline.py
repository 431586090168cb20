"""The backend that isn't one: orders are run by whoever takes their pages."""

from __future__ import annotations

from zephon.backends.failures import CLOSED, failed_build, failed_order
from zephon.backends.protocol import Build, Prepare
from zephon.errors import StoreError, ZephonError
from zephon.page import Order, Page


class InlineBackend:
    """Runs an order when its page is taken, in the calling thread."""

    def __init__(self, build: Build, *, workers: int = 1) -> None:
        # `workers` is there because every backend takes it; there is nothing to run more than one.
        del workers
        self._build = build
        self._prepare: Prepare | None = None
        self._orders: dict[int, Order] = {}
        self._tickets = 0
        self._closed = False

    def submit(self, order: Order) -> int:
        """Accept an order and return its ticket."""
        if self._closed:
            raise StoreError(CLOSED)
        self._tickets += 1
        self._orders[self._tickets] = order
        return self._tickets

    def take(self, ticket: int) -> Page:
        """Make and return a ticket's page; raises what making it raised."""
        if self._closed:
            raise StoreError(CLOSED)
        order = self._orders.pop(ticket)
        if self._prepare is None:
            try:
                self._prepare = self._build()
            except ZephonError:
                raise
            except Exception as error:
                raise failed_build(error) from error
        try:
            return self._prepare(order)
        except ZephonError:
            raise
        except Exception as error:
            raise failed_order(error, order) from error

    def drop(self, ticket: int) -> None:
        """Give a ticket up; it is never run."""
        self._orders.pop(ticket, None)

    def close(self) -> None:
        """Forget the orders and the stages."""
        self._closed = True
        self._orders.clear()
        self._prepare = None
