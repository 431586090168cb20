"""A lane: sources, mixer, operators and packer in a row, asked for one sequence at a time."""

from __future__ import annotations

from zephon.item import Item, Row
from zephon.lanes.mixer import Mixer, Pulled
from zephon.lanes.packers import make_operators, make_packer
from zephon.lanes.protocol import Feed, Operator, Packer
from zephon.lanes.spec import LaneSpec
from zephon.lanes.state import HeldState, LaneState


class Lane:
    """Plans a fixed substream: sequence `lane + lanes * k` of a pass is its k-th.

    All decisions are made here, one after another, from references, lengths and metadata alone.
    """

    def __init__(
        self, spec: LaneSpec, lane: int, feed: Feed, *, state: LaneState | None = None, pulled: Pulled | None = None
    ) -> None:
        state = state or LaneState()
        self._spec = spec
        self._lane = lane
        self._pass_number = state.pass_number
        self._sequences = state.sequences
        self._state = state
        self._dry = False
        self._mixer = Mixer(
            spec,
            lane=lane,
            pass_number=state.pass_number,
            feed=feed,
            pulled=Pulled() if pulled is None else pulled,
            entry=state.entry,
            states=state.sources,
        )
        self._operators = make_operators(spec, lane)
        self._packer = make_packer(spec)
        self._parts: list[Operator | Packer] = [*self._operators, self._packer]
        for part, held in zip(self._parts, state.operators, strict=False):
            part.restore(held.state, held.held)

    @property
    def sequences(self) -> int:
        """How many sequences the lane has planned in this pass."""
        return self._sequences

    def next(self) -> Row | None:
        """Return the next row; None where the lane is dry, whose state then stays what it was."""
        if self._dry:
            return None
        pop, last_part = self._packer.pop, len(self._operators)
        row = pop(last=False)
        while row is None:
            if not self._fill(last_part):
                row = pop(last=True)
                if row is None:
                    self._dry = True
                    return None
                break
            row = pop(last=False)
        self._sequences += 1
        return row

    def state(self) -> LaneState:
        """Return the lane's state after its last row, to be asked for after each; the digest is left to the caller."""
        if not self._dry and self._state.sequences != self._sequences:
            self._state = LaneState(
                self._pass_number,
                self._sequences,
                self._mixer.entry,
                self._mixer.states(),
                tuple([HeldState(part.state(), part.held()) for part in self._parts]),
            )
        return self._state

    def close(self) -> None:
        """Give up all open blocks."""
        self._mixer.close()

    def _fill(self, position: int) -> bool:
        """Give the part at `position` more input; False where there is none."""
        if position == 0:
            items = self._mixer.pull(self._lane + self._spec.lanes * self._sequences)
            if items is None:
                return False
            push = self._parts[0].push
            for item in items:
                push(item)
            return True
        output = self._take(position - 1)
        if output is None:
            return False
        self._parts[position].push(output)
        return True

    def _take(self, position: int) -> Item | None:
        """Return the next output of the operator at `position`; None where nothing more comes."""
        operator = self._operators[position]
        while True:
            item = operator.pop(last=False)
            if item is not None:
                return item
            if not self._fill(position):
                return operator.pop(last=True)
