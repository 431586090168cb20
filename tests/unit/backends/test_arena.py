"""The arena: pieces that are handed out never overlap, and come back however their arrays die."""

from __future__ import annotations

import gc
import os
import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from zephon.backends import worker
from zephon.backends.arena import ALIGNMENT, Arena, Piece, arrays_in, bytes_of
from zephon.backends.processes import ProcessesBackend
from zephon.page import Wanted
from zephon.testing.prepare import order, painted

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no anonymous memory files")
SIZE = 1 << 12


def filled(arena: Arena, piece: Piece, value: int) -> NDArray[np.uint8]:
    (array,) = arena.views(piece, (Wanted(0, 0, 1, 1, (piece.stop - piece.start) // 3),))
    array[:] = value
    return array[0]


@given(steps=st.lists(st.tuples(st.integers(0, 3), st.integers(1, SIZE // 3)), max_size=60))
def test_pieces_never_overlap_and_all_come_back(steps: list[tuple[int, int]]) -> None:
    arena = Arena(SIZE)
    taken: list[Piece] = []
    shown: dict[Piece, NDArray[np.uint8]] = {}
    for kind, number in steps:
        if kind == 0 and taken:
            arena.give_back(taken.pop(number % len(taken)))
        elif kind == 1 and taken:
            piece = taken.pop(number % len(taken))
            shown[piece] = filled(arena, piece, number % 256)
        elif kind == 2 and shown:
            del shown[list(shown)[number % len(shown)]]
        elif (piece := arena.take(number)) is not None:
            assert piece.stop - piece.start >= number
            assert piece.start % ALIGNMENT == 0
            taken.append(piece)
        held = sorted([*taken, *shown])
        assert all(before.stop <= after.start for before, after in pairwise(held))
        assert all(len(set(array.reshape(-1).tolist())) == 1 for array in shown.values())
    shown.clear()
    for piece in taken:
        arena.give_back(piece)
    assert arena.take(SIZE) == Piece(0, SIZE)
    arena.close()


def test_a_piece_lives_as_long_as_the_last_of_its_arrays() -> None:
    arena = Arena(SIZE)
    wanted = (Wanted(0, 0, 1, 5, 7), Wanted(1, 0, 2, 3, 2))
    size = bytes_of(wanted)
    piece = arena.take(size)
    assert piece is not None
    first, second = arena.views(piece, wanted)
    assert first.shape == (1, 5, 7, 3)
    assert second.shape == (2, 3, 2, 3)
    assert first.flags.writeable
    del first
    gc.collect()
    assert arena.take(SIZE) is None
    rest = second[1:, :1].reshape(-1)
    del second
    assert arena.take(SIZE) is None
    # In another thread, as a trainer's may.
    thread = threading.Thread(target=lambda held: held.clear(), args=([rest],))
    del rest
    thread.start()
    thread.join()
    del thread
    assert arena.take(SIZE) == Piece(0, SIZE)
    arena.close()


def test_arrays_outlive_the_arena() -> None:
    arena = Arena(SIZE)
    wanted = (Wanted(0, 0, 1, 2, 2),)
    piece = arena.take(bytes_of(wanted))
    assert piece is not None
    (array,) = arena.views(piece, wanted)
    array[:] = 7
    arena.close()
    arena.close()
    assert arena.take(1) is None
    del arena
    gc.collect()
    assert array.tolist() == [[[[7] * 3] * 2] * 2]


def test_both_sides_find_the_same_arrays() -> None:
    wanted = tuple(Wanted(number, 0, 1, number + 1, 3) for number in range(5))
    memory = np.zeros(bytes_of(wanted), np.uint8)
    for number, array in enumerate(arrays_in(memory, wanted)):
        array[:] = number + 1
    assert [array.max() for array in arrays_in(memory, wanted)] == [1, 2, 3, 4, 5]
    assert memory.sum() == sum(array.size * (number + 1) for number, array in enumerate(arrays_in(memory, wanted)))


def test_no_room_to_map_is_no_arena() -> None:
    # As with ulimit -v: more than there are addresses.
    arena = Arena(1 << 47)
    assert arena.take(100) is None
    assert arena.descriptor is not None
    assert worker._inherit(os.dup(arena.descriptor), 1 << 47) is None
    arena.close()


def test_pixels_without_an_arena_are_sent() -> None:
    backend = ProcessesBackend(painted, workers=1, arena_bytes=1 << 47)
    pixels = backend.take(backend.submit(order(5, wanted=(Wanted(0, 0, 1, 40, 30),)))).pixels
    assert pixels is not None
    assert pixels[0].shape == (1, 40, 30, 3)
    assert (pixels[0] == 5).all()
    backend.close()
