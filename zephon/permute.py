"""Order of blocks in an epoch and of samples in a block: pure functions of a key."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from zephon.hashing import draw, draws

SORT_BELOW = 4096
ROUNDS = 6


def permute(key: int, slot: int, size: int) -> int:
    """Return the block at `slot` of a keyed permutation of range(size), in O(1) time and memory.

    A balanced Feistel network over the next power of four with cycle walking [Black & Rogaway 2002];
    below 4,096 blocks a keyed sort, because small Feistel domains are biased.
    """
    if size < SORT_BELOW:
        return int(_sorted_permutation(key, size)[slot])
    half_bits = ((size - 1).bit_length() + 1) // 2
    block = slot
    while True:
        block = _feistel(key, block, half_bits)
        if block < size:
            return block


def order(key: int, size: int) -> list[int]:
    """Return range(size) in keyed order: a stable argsort of draw(key, i)."""
    result: list[int] = np.argsort(draws(key, 0, size), kind="stable").tolist()
    return result


def _feistel(key: int, value: int, half_bits: int) -> int:
    mask = (1 << half_bits) - 1
    left, right = value >> half_bits, value & mask
    for round_ in range(ROUNDS):
        # The round number sits above any half, so that rounds never share a draw.
        left, right = right, left ^ (draw(key, (round_ << 40) | right) & mask)
    return (left << half_bits) | right


def _argsort(key: int, size: int) -> NDArray[np.int64]:
    return np.argsort(draws(key, 0, size), kind="stable")


# A pure function's cache, not state: at most 256 tables of 4,095 numbers.
_sorted_permutation: Callable[[int, int], NDArray[np.int64]] = lru_cache(maxsize=256)(_argsort)
