"""Chance for stages: a small counter-based generator that is keyed by the sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from zephon.hashing import draw, key

T = TypeVar("T")
WORD = 1 << 64


class SampleRandom:
    """A generator whose draws depend on its key alone: equal keys give equal draws for ever.

    Draw number c is hashing.draw(key, c), c = 0, 1, … counted over all methods. It is made anew for
    each sample and never shared between threads.
    """

    __slots__ = ("_counter", "key")

    def __init__(self, key: int) -> None:
        self.key = key
        self._counter = 0

    def bits(self) -> int:
        """Return the next 64 bits, as an integer in [0, 2^64)."""
        value = draw(self.key, self._counter)
        self._counter += 1
        return value

    def random(self) -> float:
        """Return a float in [0, 1): the next draw's upper 53 bits."""
        return (self.bits() >> 11) * 2.0**-53

    def integers(self, low: int, high: int) -> int:
        """Return an integer in [low, high), each equally likely, by rejection.

        Raises ValueError where the range is empty or holds more than 2^64 numbers.
        """
        size = high - low
        if not 0 < size <= WORD:
            raise ValueError(f"integers({low}, {high}): the range must hold 1 to 2^64 numbers")
        # Draws above the last multiple of `size` would favour small numbers.
        limit = WORD - WORD % size
        while True:
            value = self.bits()
            if value < limit:
                return low + value % size

    def choice(self, items: Sequence[T]) -> T:
        """Return one of the items, each equally likely."""
        return items[self.integers(0, len(items))]

    def shuffle(self, items: Sequence[T]) -> list[T]:
        """Return the items in a new list, each order equally likely [Fisher & Yates; Durstenfeld 1964]."""
        result = list(items)
        for last in range(len(result) - 1, 0, -1):
            other = self.integers(0, last + 1)
            result[last], result[other] = result[other], result[last]
        return result

    def numpy(self) -> np.random.Generator:
        """Return a NumPy generator (Philox) with this key.

        Its raw bits are fixed, but NumPy may change how its distributions use them from one release to
        the next: pin NumPy, or use the methods above, where the stream must outlive it.
        """
        return np.random.Generator(np.random.Philox(key=self.key))


def sample_random(*, seed: int, source: str, epoch: int, block: int, sample: int) -> SampleRandom:
    """Return the generator of a sample in an epoch."""
    return SampleRandom(key(seed, "augment", source, epoch, block, sample))


def attachment_random(*, seed: int, source: str, epoch: int, block: int, sample: int, number: int) -> SampleRandom:
    """Return the generator of a sample's attachment in an epoch, whichever others are decoded before it."""
    return SampleRandom(key(seed, "augment attachment", source, epoch, block, sample, number))
