"""Shared memory for pixels: a parent gives each order a piece, its worker fills that, and nobody copies.

Memory is taken from the system when it is first written to, from low addresses up, and kept for the next pieces.
"""

from __future__ import annotations

import os
import weakref
from bisect import insort
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from zephon.backends.failures import CLOSED
from zephon.backends.shared_memory import attach, reserve_lazily
from zephon.errors import StoreError
from zephon.page import Wanted

ALIGNMENT = 64


class Piece(NamedTuple):
    """A part of an arena, in bytes."""

    start: int
    stop: int


class _Block:
    """A piece's bytes for NumPy, which keeps this alive as long as an array of them; it doesn't keep slices alive."""

    __slots__ = ("__array_interface__", "__weakref__", "_memory")

    def __init__(self, memory: NDArray[np.uint8], piece: Piece) -> None:
        self._memory = memory
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (piece.stop - piece.start,),
            "data": (memory.ctypes.data + piece.start, False),
        }


class Arena:
    """Hands out pieces of `num_bytes` of shared memory, each once until it comes back; none where there is none.

    One thread takes and gives back; the arrays of `views` may die in any.
    """

    def __init__(self, num_bytes: int) -> None:
        self._num_bytes = num_bytes
        # What workers inherit; None where there is no such memory.
        self.descriptor = reserve_lazily(num_bytes) if num_bytes else None
        self._memory: NDArray[np.uint8] | None = None
        self._free = [Piece(0, num_bytes)]
        # Arrays die in any thread, in the middle of anything: they only leave a note, and without a line of Python,
        # in which Ctrl-C could strike.
        self._returned: deque[weakref.ref[_Block]] = deque()
        self._watched: dict[weakref.ref[_Block], Piece] = {}

    def take(self, num_bytes: int) -> Piece | None:
        """Return the lowest free piece of so many bytes, None where there is none."""
        while self._returned:
            self.give_back(self._watched.pop(self._returned.popleft()))
        size = -(-num_bytes // ALIGNMENT) * ALIGNMENT
        if self.descriptor is None or not size:
            return None
        for number, hole in enumerate(self._free):
            if hole.stop - hole.start >= size:
                if self._memory is None and not self._map():
                    return None
                piece = Piece(hole.start, hole.start + size)
                if piece.stop == hole.stop:
                    del self._free[number]
                else:
                    self._free[number] = Piece(piece.stop, hole.stop)
                return piece
        return None

    def _map(self) -> bool:
        """Map the memory; return whether there was room for it, and ask no more where there wasn't (ulimit -v)."""
        try:
            self._memory = attach(cast(int, self.descriptor), self._num_bytes)
        except OSError:
            self._free.clear()
        return self._memory is not None

    def give_back(self, piece: Piece) -> None:
        """Take a piece back, which nobody writes to or reads any more."""
        insort(self._free, piece)
        place = self._free.index(piece)
        if place + 1 < len(self._free) and piece.stop == self._free[place + 1].start:
            self._free[place : place + 2] = [piece := Piece(piece.start, self._free[place + 1].stop)]
        if place and self._free[place - 1].stop == piece.start:
            self._free[place - 1 : place + 1] = [Piece(self._free[place - 1].start, piece.stop)]

    def views(self, piece: Piece, wanted: Sequence[Wanted]) -> tuple[NDArray[np.uint8], ...]:
        """Return the arrays in a piece that was filled; it comes back when the last of them dies."""
        if self._memory is None:
            raise StoreError(CLOSED)
        block = _Block(self._memory, piece)
        self._watched[weakref.ref(block, self._returned.append)] = piece
        return arrays_in(np.asarray(block), wanted)

    def close(self) -> None:
        """Give no more pieces; arrays that are in use stay valid."""
        # First: another thread may close it too, and the number be another file's by then.
        descriptor, self.descriptor = self.descriptor, None
        self._memory = None
        if descriptor is not None:
            os.close(descriptor)


def bytes_of(wanted: Sequence[Wanted]) -> int:
    """Return how many bytes the arrays of an order take in a piece."""
    return sum(_padded(each) for each in wanted)


def arrays_in(memory: NDArray[np.uint8], wanted: Sequence[Wanted]) -> tuple[NDArray[np.uint8], ...]:
    """Return the array of each attachment in a piece's bytes, uint8 [frames, height, width, 3]."""
    arrays = []
    start = 0
    for each in wanted:
        shape = (each.frames, each.height, each.width, 3)
        arrays.append(memory[start : start + 3 * each.frames * each.height * each.width].reshape(shape))
        start += _padded(each)
    return tuple(arrays)


def _padded(wanted: Wanted) -> int:
    size = 3 * wanted.frames * wanted.height * wanted.width
    return -(-size // ALIGNMENT) * ALIGNMENT
