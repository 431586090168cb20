"""Figures for loggers, from a loader's report: of the time since they were last taken."""

from __future__ import annotations

import math
import time
from typing import Any

from zephon import Loader

# Epochs are read from the states of all lanes: milliseconds for 64 of them.
PLACES_EVERY_S = 30.0


class Metrics:
    """Takes differences of a loader's report."""

    def __init__(self) -> None:
        self._last: dict[str, Any] = {}
        self._at_s = 0.0
        self._placed_at_s = -math.inf

    def start(self, loader: Loader) -> None:
        """Begin the first interval."""
        self._last, self._at_s = loader.report(places=False), time.perf_counter()
        self._placed_at_s = -math.inf

    def since(self, loader: Loader) -> tuple[dict[str, float], dict[str, float]]:
        """Return the rate, and the other figures, of the interval that ends now; the next one begins.

        zephon/tokens_per_s                tokens of all ranks a second, taken to be like this rank's
        zephon/packing_efficiency          part of the rows that held tokens
        zephon/wait                        part of the time that the trainer waited for data
        zephon/mixture/NAME                part of the delivered tokens that came from a source
        zephon/epoch/NAME                  a source's lowest epoch among this rank's lanes
        zephon/epoch_max/NAME              the highest; lanes drift, so an epoch is a range

        Epochs are left out where they were given less than PLACES_EVERY_S ago.
        """
        places = time.perf_counter() - self._placed_at_s >= PLACES_EVERY_S
        now, at_s = loader.report(places=places), time.perf_counter()
        last, seconds = self._last, max(at_s - self._at_s, 1e-9)
        self._last, self._at_s = now, at_s
        tokens = now["tokens"] - last["tokens"]
        capacity = now["capacity_tokens"] - last["capacity_tokens"]
        others = {
            "zephon/packing_efficiency": tokens / capacity if capacity else 0.0,
            "zephon/wait": (now["wait_s"] - last["wait_s"]) / seconds,
        }
        for name, count in now["delivered"].items():
            others[f"zephon/mixture/{name}"] = (count - last["delivered"][name]) / tokens if tokens else 0.0
        if places:
            self._placed_at_s = at_s
        for name, (lowest, highest) in now.get("epochs", {}).items():
            others[f"zephon/epoch/{name}"] = float(lowest)
            others[f"zephon/epoch_max/{name}"] = float(highest)
        return {"zephon/tokens_per_s": tokens * loader.topology.dp_size / seconds}, others
