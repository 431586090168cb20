"""Keyed, counter-based randomness: the only source of chance in Zephon.

A *key* is 64 bits made from (seed, purpose, names and numbers) with BLAKE2b; a *draw* is a mix of a
key and a counter. Both are plain integer arithmetic, so no release of NumPy or Python can change them.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

MASK = 0xFFFF_FFFF_FFFF_FFFF
GOLDEN = 0x9E37_79B9_7F4A_7C15
MUL_A = 0xBF58_476D_1CE4_E5B9
MUL_B = 0x94D0_49BB_1331_11EB


def key(seed: int, purpose: str, *parts: str | int) -> int:
    """Return the 64-bit key of (seed, purpose, parts); equal arguments give equal keys for ever.

    BLAKE2b-64 over the decimal seed, the purpose and the parts, each in UTF-8, preceded by its length
    as 4 little-endian bytes; numbers are written in decimal after `#`, so that 7 and "7" differ.
    """
    digest = blake2b(digest_size=8)
    for part in (seed, purpose, *parts):
        text = (f"#{part}" if isinstance(part, int) else part).encode()
        digest.update(len(text).to_bytes(4, "little"))
        digest.update(text)
    return int.from_bytes(digest.digest(), "little")


def mix(value: int) -> int:
    """Return SplitMix64's finalizer of a 64-bit value [Steele, Lea & Flood 2014]."""
    value = ((value ^ (value >> 30)) * MUL_A) & MASK
    value = ((value ^ (value >> 27)) * MUL_B) & MASK
    return value ^ (value >> 31)


def draw(key: int, counter: int) -> int:
    """Return the 64-bit draw number `counter` of `key`: mix(key ^ mix((counter + 1) * GOLDEN))."""
    return mix(key ^ mix(((counter + 1) * GOLDEN) & MASK))


def draws(key: int, start: int, stop: int) -> NDArray[np.uint64]:
    """Return draw(key, c) for c in range(start, stop) as uint64 [stop - start]."""
    # All in uint64: wrapping multiplication is the point, and NumPy's overflow warnings don't apply to arrays.
    counters = FIRST[start:stop] if stop <= len(FIRST) else _mixed_counters(start, stop)
    return mix_array(counters ^ np.uint64(key))


def mix_array(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return mix() of each element of a uint64 array, in a new array."""
    result = value >> SHIFT_A
    result ^= value
    result *= FACTOR_A
    result ^= result >> SHIFT_B
    result *= FACTOR_B
    result ^= result >> SHIFT_C
    return result


def _mixed_counters(start: int, stop: int) -> NDArray[np.uint64]:
    return mix_array(np.arange(start + 1, stop + 1, dtype=np.uint64) * np.uint64(GOLDEN))


SHIFT_A, SHIFT_B, SHIFT_C = np.uint64(30), np.uint64(27), np.uint64(31)
FACTOR_A, FACTOR_B = np.uint64(MUL_A), np.uint64(MUL_B)
# A table of what nearly every block needs: half the work of drawing an order.
FIRST = _mixed_counters(0, 256)
