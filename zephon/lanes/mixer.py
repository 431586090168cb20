"""Which source a lane pulls from next: stride scheduling in integers, with a schedule of mixtures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

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
        self._means = {source.name: 1 if spec.by_samples else source.mean_tokens for source in spec.sources}
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
        spec = self._spec
        empty, num_bad = cursor.count_empty(bad=bad)
        if empty >= spec.max_empty:
            raise DataError(
                f"source {cursor.name}: {empty} samples in a row gave no document (lane {self._lane}); "
                "check its stage and filter, or raise max_empty"
            )
        if bad and spec.max_bad is not None and num_bad > spec.max_bad:
            raise DataError(
                f"source {cursor.name}: {num_bad} bad samples in lane {self._lane}, more than "
                f"max_bad_samples={spec.max_bad}; check the data, or raise the limit"
            )
        return ()

    def _move_on(self, sequence: int) -> None:
        """Enter the mixtures that are due, or that come because nothing is left in the one before."""
        entries = self._spec.entries
        while self.entry + 1 < len(entries) and (entries[self.entry + 1].start <= sequence or not self._active):
            self._enter(self.entry + 1)

    def _enter(self, entry: int) -> None:
        old = self._active
        strides = self._spec.entries[entry].strides()
        low = min((cursor.passed or 0 for cursor in old), default=0)
        staying: dict[str, int] = {}
        for cursor in old:
            if cursor.name in strides:
                staying[cursor.name] = ((cursor.passed or 0) - low) * strides[cursor.name] // cursor.stride
        low = min(staying.values(), default=0)
        for source in self._spec.sources:
            name = source.name
            if name not in strides:
                if name in self._cursors:
                    self._cursors[name].passed = None
                continue
            if name not in self._cursors:
                self._cursors[name] = self._cursor(name, None)
            cursor, stride = self._cursors[name], strides[name]
            phase = cursor.phase_draw * self._means[name] * TOKEN * stride >> 64
            cursor.passed, cursor.stride = staying.get(name, low + phase), stride
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
