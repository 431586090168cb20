"""Who consumes what: ownership of lanes and sequences by data-parallel ranks."""

from __future__ import annotations

from math import gcd

import msgspec

from zephon.errors import ConfigError


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """A data-parallel rank among `dp_size`; tensor, pipeline and context peers share one `dp_rank`."""

    dp_rank: int = 0
    dp_size: int = 1

    def __post_init__(self) -> None:
        if self.dp_size < 1:
            raise ConfigError(f"dp_size={self.dp_size} is no data-parallel size; it must be at least 1")
        if not 0 <= self.dp_rank < self.dp_size:
            raise ConfigError(f"dp_rank={self.dp_rank} is outside 0..{self.dp_size - 1} (dp_size={self.dp_size})")


def lanes_of(topology: Topology, lanes: int) -> range:
    """Return the lanes that a rank plans: those ≡ r (mod R) if R divides L, one shared lane if L divides R.

    Raises ConfigError, listing the sizes that work, where neither divides the other.
    """
    size, rank = topology.dp_size, topology.dp_rank
    if lanes % size == 0:
        return range(rank, lanes, size)
    if size % lanes == 0:
        return range(rank % lanes, rank % lanes + 1)
    divisors = [n for n in range(1, lanes + 1) if lanes % n == 0]
    nearest = sorted({gcd(size, lanes), *divisors})
    listed = ", ".join(map(str, nearest[:24])) + (", …" if len(nearest) > 24 else "")
    raise ConfigError(
        f"dp_size={size} and lanes={lanes} don't divide each other; dp sizes that work: {listed}, "
        f"and multiples of {lanes}"
    )


def owner(sequence: int, dp_size: int) -> int:
    """Return the data-parallel rank that consumes a sequence."""
    return sequence % dp_size


def first_row(consumed: int, index: int, period: int) -> int:
    """Return the smallest n >= consumed with n ≡ index (mod period)."""
    return consumed + (index - consumed) % period


def rows_before(position: int, index: int, period: int) -> int:
    """Return how many n < position are ≡ index (mod period)."""
    return max(0, (position - index + period - 1) // period)
