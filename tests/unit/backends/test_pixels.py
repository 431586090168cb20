"""Pixels from worker processes: through the arena or past it, whatever dies, is dropped or is held."""

from __future__ import annotations

import random
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from child_processes import shared_bytes

from zephon.backends.processes import ProcessesBackend
from zephon.errors import DataError
from zephon.page import Wanted
from zephon.testing.prepare import dying, failing, order, painted, waiting

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


def squares(*sides: int) -> tuple[Wanted, ...]:
    return tuple(Wanted(number, 0, 1, side, side) for number, side in enumerate(sides))


# All, some and none of them in the arena.
@pytest.mark.parametrize("arena_bytes", [64 << 20, 1 << 16, 0])
def test_pixels_come_through_the_arena_or_past_it(arena_bytes: int) -> None:
    backend = ProcessesBackend(painted, workers=2, arena_bytes=arena_bytes)
    held = []
    for block in range(60):
        wanted = squares(*range(1 + block % 3, 90, 11))
        pixels = backend.take(backend.submit(order(block, wanted=wanted))).pixels
        assert pixels is not None
        assert [array.shape for array in pixels] == [(1, each.height, each.width, 3) for each in wanted]
        held.append(pixels[-1])
        if len(held) > 20:
            held.pop(0)
        # Whatever has come since.
        for number, array in enumerate(held, start=block + 1 - len(held)):
            assert np.all(array == number + len(squares(*range(1 + number % 3, 90, 11))) - 1)
    backend.close()
    assert np.all(held[-1] == held[-1].reshape(-1)[0])


def test_memory_of_pixels_is_used_again() -> None:
    backend = ProcessesBackend(painted, workers=2)
    for block in range(300):
        page = backend.take(backend.submit(order(block, wanted=squares(600))))
        assert page.pixels is not None
        assert page.pixels[0][0, 0, 0, 0] == block % 256
    # 300 pictures of a megabyte: the machine gave memory for a few of them.
    assert backend.take(backend.submit(order(0, wanted=squares(600)))).pixels is not None
    assert shared_bytes() < 40 << 20
    backend.close()


def test_pixels_that_nobody_waits_for_and_workers_that_die_leave_others_alone(tmp_path: Path) -> None:
    build = partial(dying, partial(waiting, painted, seconds=0.002), block=40, times=2, folder=str(tmp_path))
    # Room for six.
    backend = ProcessesBackend(build, workers=2, arena_bytes=6 * 3 * 128 * 128)
    rng = random.Random(3)
    held: list[tuple[int, Any]] = []
    tickets: list[tuple[int, int]] = []
    for block in range(80):
        tickets.append((block, backend.submit(order(block, wanted=squares(128)))))
        if len(tickets) > 6:
            number, ticket = tickets.pop(rng.randrange(len(tickets)))
            if rng.random() < 0.4 and number != 40:
                backend.drop(ticket)
            else:
                pixels = backend.take(ticket).pixels
                assert pixels is not None
                held = [*held, (number, pixels[0])][-4:]
        for number, array in held:
            assert np.all(array == number)
    for _, ticket in tickets:
        backend.take(ticket)
    assert len(list(tmp_path.iterdir())) == 2
    backend.close()


def test_the_order_that_kills_is_the_one_that_is_given_up(tmp_path: Path) -> None:
    # A worker has several orders, and the one that it was at is to blame.
    build = partial(dying, painted, block=42, times=99, folder=str(tmp_path))
    backend = ProcessesBackend(build, workers=2)
    for block in range(30):
        backend.take(backend.submit(order(block, wanted=squares(8))))
    tickets = {block: backend.submit(order(block, wanted=squares(8))) for block in range(30, 60)}
    for block, ticket in tickets.items():
        if block == 42:
            with pytest.raises(DataError, match=r"block 42 .*: 3 worker processes died at it"):
                backend.take(ticket)
            continue
        pixels = backend.take(ticket).pixels
        assert pixels is not None
        assert np.all(pixels[0] == block)
    backend.close()


def test_an_error_among_others_is_that_order_s(tmp_path: Path) -> None:
    backend = ProcessesBackend(partial(failing, painted, block=7, error=DataError("no good")), workers=1)
    tickets = [backend.submit(order(block, wanted=squares(8))) for block in range(20)]
    for block, ticket in enumerate(tickets):
        if block == 7:
            with pytest.raises(DataError, match=r"^no good$"):
                backend.take(ticket)
        else:
            assert backend.take(ticket).block_hash == block
    backend.close()
