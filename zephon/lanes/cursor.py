"""A lane's place in one source: which blocks are open, and which sample comes next."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from zephon.hashing import draw, draws, key
from zephon.item import Item
from zephon.lanes.protocol import BlockReader, Feed
from zephon.lanes.spec import SourceSpec
from zephon.lanes.state import SourceState

PICKS = 64


class OpenBlock:
    """An open block: its number k in the lane, samples taken, and their reader."""

    __slots__ = ("k", "reader", "samples", "taken")

    def __init__(self, k: int, taken: int, samples: int, reader: BlockReader) -> None:
        self.k = k
        self.taken = taken
        self.samples = samples
        self.reader = reader


class Cursor:
    """Takes a source's samples for one lane and pass; see docs/stream.md, "A lane's cursor"."""

    __slots__ = (
        "_ahead", "_end", "_feed", "_lane", "_lanes", "_open", "_picks", "_picks_from", "_snapshot",
        "_spread_key", "bad", "empty", "name", "next_k", "passed", "phase_draw", "pulls", "stride",
    )  # fmt: skip

    def __init__(
        self,
        *,
        seed: int,
        lane: int,
        lanes: int,
        spread: int,
        source: SourceSpec,
        pass_number: int,
        feed: Feed,
        state: SourceState | None,
    ) -> None:
        self._feed = feed
        self._lane = lane + source.base(pass_number)
        self._lanes = lanes
        self._end = source.end(pass_number)
        self._spread_key = key(seed, "spread", source.name, lane, pass_number)
        self._picks: list[int] = []
        self._picks_from = 0
        self._ahead: deque[OpenBlock] = deque()
        self._snapshot: SourceState | None = None
        self.name = source.name
        self.phase_draw = draw(key(seed, "phase", source.name, lane), pass_number)
        self.stride = 0
        self.passed: int | None = None
        self.next_k = 0
        self.pulls = self.empty = self.bad = 0
        self._open: list[OpenBlock] = []
        if state is None:
            while len(self._open) < spread and self._exists(self.next_k):
                self._open.append(self._open_block(self.next_k, 0, 0))
                self.next_k += 1
        else:
            self.passed, self.next_k = state.passed, state.next_k
            self.pulls, self.empty, self.bad = state.pulls, state.empty, state.bad
            self._open = [self._open_block(*block) for block in state.open]
        self._look_ahead()

    @property
    def used_up(self) -> bool:
        """Whether no sample is left."""
        return not self._open

    def take(self) -> Sequence[Item] | None:
        """Return the next sample's documents, or None for a bad one that is skipped."""
        self._snapshot = None
        pull = self.pulls - self._picks_from
        if not 0 <= pull < len(self._picks):
            self._picks_from, pull = self.pulls, 0
            self._picks = draws(self._spread_key, self.pulls, self.pulls + PICKS).tolist()
        index = self._picks[pull] % len(self._open)
        block = self._open[index]
        items = block.reader.take()
        self.pulls += 1
        block.taken += 1
        if block.taken == block.samples:
            self._replace(index)
        return items

    def state(self) -> SourceState:
        """Return the cursor's state; the same object until the next pull."""
        if self._snapshot is None:
            self._snapshot = SourceState(
                self.name,
                self.passed,
                self.next_k,
                self.pulls,
                self.empty,
                self.bad,
                # A block that nothing was taken from may or may not have been read: its hash is no state.
                tuple([(b.k, b.taken, b.reader.block_hash if b.taken else 0) for b in self._open]),
            )
        return self._snapshot

    def set_passed(self, passed: int | None, stride: int) -> None:
        """Set the source's pass and stride; None switches it off."""
        self._snapshot = None
        self.passed, self.stride = passed, stride

    def close(self) -> None:
        """Give up all open blocks."""
        for block in (*self._open, *self._ahead):
            block.reader.close()

    def _exists(self, k: int) -> bool:
        return self._end is None or self._lane + self._lanes * k < self._end

    def _open_block(self, k: int, taken: int, block_hash: int, *, ahead: bool = False) -> OpenBlock:
        q = self._lane + self._lanes * k
        reader = self._feed.open(self.name, q, taken, block_hash, ahead=ahead)
        return OpenBlock(k, taken, reader.samples, reader)

    def _replace(self, index: int) -> None:
        self._open[index].reader.close()
        if not self._exists(self.next_k):
            del self._open[index]
            return
        ahead = self._ahead
        self._open[index] = ahead.popleft() if ahead else self._open_block(self.next_k, 0, 0)
        self.next_k += 1
        self._look_ahead()

    def _look_ahead(self) -> None:
        wanted = self._feed.ahead(self.name)
        while len(self._ahead) < wanted:
            k = self.next_k + len(self._ahead)
            if not self._exists(k):
                return
            self._ahead.append(self._open_block(k, 0, 0, ahead=True))
