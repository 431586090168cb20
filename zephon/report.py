"""What a loader was given, in numbers that a person or a logger reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from zephon.engine.engine import Counts
from zephon.lanes.spec import ENDLESS_PASS
from zephon.state.lane_codec import decode_lane
from zephon.workload import Workload


class Totals:
    """Sums over a loader's sessions; each session counts from its own start."""

    def __init__(self) -> None:
        self.capacity = 0
        self.wait_s = 0.0
        self.host_bytes = 0
        self.work = Workload()
        # Of sessions that ended, and of this one so far.
        self._ended = self._last = Counts(0, 0, 0, {}, {})

    def restart(self) -> None:
        """Begin a session's counts."""
        self._ended, self._last = self.counted(), Counts(0, 0, 0, {}, {})

    def waited(self, seconds: float) -> None:
        """Add time spent waiting for a micro-batch."""
        self.wait_s += seconds

    def add(self, counts: Counts, capacity_tokens: int, *, host_bytes: int = 0) -> None:
        """Add a micro-batch with room for so many tokens, given its session's counts after it."""
        self.host_bytes += host_bytes
        self.work.add(counts.work)
        self.capacity += capacity_tokens
        if counts.rows < self._last.rows:
            # A pass's engine counts from zero.
            self.restart()
        self._last = counts

    def counted(self) -> Counts:
        """Return the counts of all sessions."""
        ended, last = self._ended, self._last
        return Counts(
            ended.rows + last.rows,
            ended.tokens + last.tokens,
            ended.documents + last.documents,
            _sum(ended.pulled, last.pulled),
            _sum(ended.delivered, last.delivered),
        )


def _sum(some: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return {name: some.get(name, 0) + more.get(name, 0) for name in {**some, **more}}


def report(
    totals: Totals, plan: Mapping[str, Any], state: Mapping[str, Any], *, inexact_pixels: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the totals and the sources' places at a state.

    sequences, tokens, documents, capacity_tokens   rows given, real tokens and documents begun in them, and their room
    packing_efficiency                              tokens / capacity_tokens
    pulled, delivered                               tokens by source: taken by the lanes, and given in rows
    epochs                                          by source [lowest, highest]: lanes drift, so a range; like
                                                    bad_samples only where the state has its lanes
    bad_samples                                     skipped ones by source, since the stream's beginning
    consumed, wait_s                                position; seconds that `next` waited
    host_bytes                                      bytes handed to the device
    images, patches, broken_images                  in these rows; broken ones gave no picture and aren't learned from
    work                                            spread of tokens, patches and cost over rows and micro-batches, in
                                                    streams with images or costs; see Workload.spread
    inexact_pixels                                  sources whose images a GPU may decode: equal but for last bits
    """
    names = sorted(plan["sources"])
    counts = totals.counted()
    return {
        "sequences": counts.rows,
        "tokens": counts.tokens,
        "documents": counts.documents,
        "capacity_tokens": totals.capacity,
        "packing_efficiency": counts.tokens / totals.capacity if totals.capacity else 0.0,
        "pulled": {name: counts.pulled.get(name, 0) for name in names},
        "delivered": {name: counts.delivered.get(name, 0) for name in names},
        **(_places(plan, state["lanes"]) if "lanes" in state else {}),
        "consumed": state["consumed"],
        "wait_s": totals.wait_s,
        "host_bytes": totals.host_bytes,
        **totals.work.totals(),
        "work": totals.work.spread(),
        "inexact_pixels": list(inexact_pixels),
    }


def _places(plan: Mapping[str, Any], lanes: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the sources' epochs and bad samples, from every lane's state."""
    names = sorted(plan["sources"])
    epochs: dict[str, list[int]] = {name: [] for name in names}
    bad = dict.fromkeys(names, 0)
    for number, data in lanes.items():
        lane = decode_lane(data, place=f"lane {number}")
        for source in lane.sources:
            spec = plan["sources"][source.name]
            base = lane.pass_number * (ENDLESS_PASS if spec["epochs"] is None else spec["epochs"]) * spec["blocks"]
            ks = [k for k, _, _ in source.open] or [source.next_k]
            for k in (min(ks), max(ks)):
                epoch = (int(number) + plan["lanes"] * k + base) // spec["blocks"]
                epochs[source.name].append(epoch % ENDLESS_PASS)
            bad[source.name] += source.bad
    return {
        "epochs": {name: [min(seen, default=0), max(seen, default=0)] for name, seen in epochs.items()},
        "bad_samples": bad,
    }
