"""Which source a lane pulls from next: stride scheduling in integers, with a schedule of mixtures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from zephon.errors import DataError
from zephon.item import Item
from zephon.lanes.cursor import Cursor
from zephon.lanes.protocol import Feed
from zephon.lanes.spec import TOKEN, LaneSpec
from zephon.lanes.state import SourceState

# Tokens that a rank's lanes pulled since they were made, by source: a report, no state.
Pulled = Counter[str]


class Mixer:
    """Stride scheduling [Waldspurger & Weihl 1995] over a lane's sources; see docs/stream.md, "Mixing"."""

    def __init__(
        self,
        spec: LaneSpec,
        *,
        lane: int,
        pass_number: int,
        feed: Feed,
        pulled: Pulled,
        entry: int = 0,
        states: Sequence[SourceState] = (),
    ) -> None:
        self._spec = spec
        self._lane = lane
        self._pass_number = pass_number
        self._feed = feed
        self._pulled = pulled
        self._by_samples = spec.by_samples
        self._cursors: dict[str, Cursor] = {}
        self.entry = entry
        self._active: list[Cursor] = []
        if states:
            kept = {state.name: state for state in states}
            for source in spec.sources:
                if source.name in kept:
                    self._cursors[source.name] = self._cursor(source.name, kept[source.name])
            strides = spec.entries[entry].strides()
            for name, cursor in self._cursors.items():
                if name in strides and cursor.passed is not None:
                    cursor.stride = strides[name]
            self._choose_active()
        else:
            self._enter(entry)

    def pull(self, sequence: int) -> Sequence[Item] | None:
        """Take the next sample, for sequence number `sequence` of the pass; None where every source is used up."""
        if sequence >= self._next_entry or not self._active:
            self._move_on(sequence)
            if not self._active:
                return None
        passed = -1
        for other in self._active:
            # An active source has a pass, and passes aren't negative.
            if passed < 0 or other.passed < passed:  # type: ignore[operator]
                cursor = other
                passed = other.passed  # type: ignore[assignment]
        items = cursor.take()
        if items:
            charge = 0
            for item in items:
                charge += item.length
            self._pulled[cursor.name] += charge
            charge *= TOKEN
        else:
            charge = 1
            items = self._without_documents(cursor, bad=items is None)
        cursor.passed = passed + (TOKEN if self._by_samples else charge) * cursor.stride
        if cursor.used_up:
            self._choose_active()
        return items

    def states(self) -> tuple[SourceState, ...]:
        """Return the sources' states, in the order of their names."""
        return tuple([cursor.state() for cursor in self._cursors.values()])

    def close(self) -> None:
        """Give up all open blocks."""
        for cursor in self._cursors.values():
            cursor.close()

    def _without_documents(self, cursor: Cursor, *, bad: bool) -> Sequence[Item]:
        empty, num_bad = cursor.count_empty(bad=bad)
        check_quotas(self._spec, self._lane, cursor.name, empty, num_bad, bad)
        return ()

    def _move_on(self, sequence: int) -> None:
        """Enter the mixtures that are due, or that come because nothing is left in the one before."""
        entries = self._spec.entries
        while self.entry + 1 < len(entries) and (entries[self.entry + 1].start <= sequence or not self._active):
            self._enter(self.entry + 1)

    def _enter(self, entry: int) -> None:
        strides = self._spec.entries[entry].strides()
        for source in self._spec.sources:
            if source.name in strides and source.name not in self._cursors:
                self._cursors[source.name] = self._cursor(source.name, None)
        passes = entered(
            self._spec,
            strides,
            {cursor.name: (cursor.passed or 0, cursor.stride) for cursor in self._active},
            {name: cursor.phase_draw for name, cursor in self._cursors.items()},
        )
        for name, cursor in self._cursors.items():
            cursor.passed, cursor.stride = passes.get(name), strides.get(name, cursor.stride)
        self._cursors = {name: self._cursors[name] for name in sorted(self._cursors)}
        self.entry = entry
        self._choose_active()

    def _choose_active(self) -> None:
        following = self._spec.entries[self.entry + 1 :]
        self._next_entry: float = following[0].start if following else math.inf
        self._active = [c for c in self._cursors.values() if c.passed is not None and not c.used_up]

    def _cursor(self, name: str, state: SourceState | None) -> Cursor:
        spec = self._spec
        return Cursor(
            seed=spec.seed,
            lane=self._lane,
            lanes=spec.lanes,
            spread=spec.spread,
            source=next(source for source in spec.sources if source.name == name),
            pass_number=self._pass_number,
            feed=self._feed,
            state=state,
        )


def entered(
    spec: LaneSpec, strides: Mapping[str, int], active: Mapping[str, tuple[int, int]], draws: Mapping[str, int]
) -> dict[str, int]:
    """Return the pass of each source of a mixture with these strides that a lane enters.

    `active` holds (pass, stride) of those that were on, `draws` each source's phase draw.
    """
    low = min((passed for passed, _ in active.values()), default=0)
    staying = {
        name: (passed - low) * strides[name] // stride for name, (passed, stride) in active.items() if name in strides
    }
    low = min(staying.values(), default=0)
    passes = {}
    for source in spec.sources:
        name = source.name
        if name in strides:
            mean = 1 if spec.by_samples else source.mean_tokens
            passes[name] = staying.get(name, low + (draws[name] * mean * TOKEN * strides[name] >> 64))
    return passes


def check_quotas(spec: LaneSpec, lane: int, source: str, empty: int, num_bad: int, bad: bool) -> None:
    """Raise DataError where a source gave too many samples without documents in a row, or too many bad ones."""
    if empty >= spec.max_empty:
        raise DataError(
            f"source {source}: {empty} samples in a row gave no document (lane {lane}); "
            "check its stage and filter, or raise max_empty"
        )
    if bad and spec.max_bad is not None and num_bad > spec.max_bad:
        raise DataError(
            f"source {source}: {num_bad} bad samples in lane {lane}, more than "
            f"max_bad_samples={spec.max_bad}; check the data, or raise the limit"
        )
