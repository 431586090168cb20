"""Whether rows and micro-batches carry like amounts of work: sums that joins of ranks can add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

RowWork = tuple[int, int, int, int, int]
MEASURES = ("tokens", "patches", "cost")
UNITS = ("row", "micro_batch")
Spread = dict[str, dict[str, dict[str, float]]]


class Workload:
    """Adds up tokens, images, patches and cost of rows and micro-batches."""

    def __init__(self) -> None:
        self._images = self._patches = self._broken = 0
        self._sums = {(unit, measure): Sums() for unit in UNITS for measure in MEASURES}

    def add(self, rows: Sequence[RowWork]) -> None:
        """Add a micro-batch's planned rows: (tokens, images, patches, cost, broken images) of each."""
        if not rows:
            return
        whole = dict.fromkeys(MEASURES, 0)
        for tokens, images, patches, cost, broken in rows:
            self._images += images
            self._patches += patches
            self._broken += broken
            for measure, value in zip(MEASURES, (tokens, patches, cost), strict=True):
                self._sums["row", measure].add(value)
                whole[measure] += value
        for measure, value in whole.items():
            self._sums["micro_batch", measure].add(value)

    def totals(self) -> dict[str, int]:
        """Return images, patches and broken images of all rows."""
        return {"images": self._images, "patches": self._patches, "broken_images": self._broken}

    def spread(self) -> Spread:
        """Return {row | micro_batch: {tokens | patches | cost: {n, mean, std, min, max}}}; {} where there is none."""
        found: Spread = {}
        for (unit, measure), sums in self._sums.items():
            if sums.n:
                found.setdefault(unit, {})[measure] = sums.values()
        return found


class Sums:
    """Number, sum, sum of squares and bounds of some numbers."""

    def __init__(self) -> None:
        self.n = self.total = self.squares = 0
        self.low = self.high = 0

    def add(self, value: int) -> None:
        """Add a number."""
        self.low = min(self.low, value) if self.n else value
        self.high = max(self.high, value)
        self.n += 1
        self.total += value
        self.squares += value * value

    def values(self) -> dict[str, float]:
        """Return n, mean, std, min and max."""
        mean = self.total / self.n
        variance = max(0.0, self.squares / self.n - mean * mean)
        return {"n": self.n, "mean": mean, "std": sqrt(variance), "min": self.low, "max": self.high}


def joined_spread(spreads: Sequence[Mapping[str, Mapping[str, Mapping[str, Any]]]]) -> Spread:
    """Return the spread over all ranks' rows and micro-batches, from each rank's."""
    joined: Spread = {}
    for unit in UNITS:
        for measure in MEASURES:
            parts = [spread[unit][measure] for spread in spreads if measure in spread.get(unit, {})]
            n = sum(part["n"] for part in parts)
            if not n:
                continue
            mean = sum(part["n"] * part["mean"] for part in parts) / n
            square = sum(part["n"] * (part["std"] ** 2 + part["mean"] ** 2) for part in parts) / n
            joined.setdefault(unit, {})[measure] = {
                "n": n,
                "mean": mean,
                "std": sqrt(max(0.0, square - mean * mean)),
                "min": min(part["min"] for part in parts),
                "max": max(part["max"] for part in parts),
            }
    return joined
