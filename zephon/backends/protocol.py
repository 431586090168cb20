"""What every backend promises: orders in, their pages out, in whatever order they finish."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from zephon.page import Order, Page

Prepare = Callable[[Order], Page]
Build = Callable[[], Prepare]


class Backend(Protocol):
    """Runs `prepare` on orders; constructed as `XBackend(build, workers=n)`.

    `build` is called once in each process and returns its `prepare`, which may run in several threads at a
    time; it must be picklable.
    One thread submits, takes and drops; any thread may close. An exception of `build` or `prepare`
    is raised by `take`: ZephonErrors as they are, others as StoreError or DataError with the place.
    """

    def submit(self, order: Order) -> int:
        """Accept an order and return its ticket at once."""
        ...

    def take(self, ticket: int) -> Page:
        """Return a ticket's page, waiting for it; each ticket is taken or dropped once.

        Raises what preparing it raised; StoreError once closed; LookupError for a ticket not outstanding.
        """
        ...

    def drop(self, ticket: int) -> None:
        """Give a ticket up: its page is discarded, now or when it comes."""
        ...

    def close(self) -> None:
        """Leave no thread, process or shared memory; wakes a `take` that waits; may be called again."""
        ...
