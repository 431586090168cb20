"""A world in which everything that may go wrong does, as one seed says.

`simulated:Life_<seed>_<n>` is a backend whose orders finish in an order of the seed's, and some of whose
pages are lost to a fault; `n` counts lives, so that a fault doesn't come back after every restart.
"""

from __future__ import annotations

import errno
import os
from functools import partial
from random import Random
from typing import Any

from zephon.backends.protocol import Build
from zephon.errors import StoreError
from zephon.page import Order, Page
from zephon.testing.backends import ShuffledBackend


class SimulatedBackend:
    """Finishes orders in any order, makes some pages twice, and loses one page in `rarity`, with a StoreError."""

    def __init__(self, build: Build, *, workers: int = 1, seed: int, life: int, rarity: int = 150) -> None:
        self._inner = ShuffledBackend(build, workers=workers, seed=seed + life)
        self._chance = Random(f"{seed}/{life}")
        self._rarity = rarity
        self._orders: dict[int, Order] = {}

    def submit(self, order: Order) -> int:
        ticket = self._inner.submit(order)
        self._orders[ticket] = order
        return ticket

    def take(self, ticket: int) -> Page:
        order = self._orders.pop(ticket)
        chance = self._chance.random()
        if chance * self._rarity < 1:
            self._inner.drop(ticket)
            raise StoreError(f"{order.location.path}: connection reset, as the simulation says; resume")
        if chance > 0.8:
            # As after a worker's death: the order is run once more, and the first page is thrown away.
            again = self._inner.submit(order)
            self._inner.take(ticket)
            return self._inner.take(again)
        return self._inner.take(ticket)

    def drop(self, ticket: int) -> None:
        self._orders.pop(ticket, None)
        self._inner.drop(ticket)

    def close(self) -> None:
        self._inner.close()


def __getattr__(name: str) -> Any:
    kind, *numbers = name.split("_")
    if kind != "Life" or len(numbers) != 2:
        raise AttributeError(name)
    return partial(SimulatedBackend, seed=int(numbers[0]), life=int(numbers[1]))


class FaultyDisk:
    """Stands for `os` in the local store: short reads, transient errors, and outages that outlive the retries."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._outage = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def pread(self, fd: int, size: int, offset: int) -> bytes:
        chance = self._chance.random()
        if self._outage or chance < 0.0005:
            self._outage = self._outage - 1 if self._outage else 20
            raise OSError(errno.EIO, "Input/output error")
        if chance < 0.03:
            raise OSError(errno.ESTALE, "Stale file handle")
        if chance < 0.2:
            size = max(1, size // 2)
        return os.pread(fd, size, offset)
