"""A lane's place in one source: which blocks are open, and which sample comes next."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from zephon.hashing import draw, draws, key
from zephon.item import Item
from zephon.lanes.protocol import BlockReader, Feed
from zephon.lanes.spec import SourceSpec
from zephon.lanes.state import BAD, BLOCKS, EMPTY, NEXT_K, PULLS, SourceState

PICKS = 64
# Samples left in a block when the one after it is ordered.
NEAR = 8


class Cursor:
    """Takes a source's samples for one lane and pass; see docs/stream.md, "A lane's cursor".

    Its numbers lie in one list, laid out as SourceState.numbers, so that a snapshot is one copy.
    """

    __slots__ = (
        "_ahead", "_end", "_feed", "_first", "_lanes", "_left", "_numbers", "_picks", "_readers", "_reserve",
        "_spread", "_spread_key", "name", "passed", "phase_draw", "stride", "used_up",
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
        self._first = lane + source.base(pass_number)
        self._lanes = lanes
        self._spread = spread
        self._end = source.end(pass_number)
        self._spread_key = key(seed, "spread", source.name, lane, pass_number)
        self._picks: list[int] = []
        self._ahead: deque[BlockReader] = deque()
        self._readers: list[BlockReader] = []
        self.name = source.name
        self.phase_draw = draw(key(seed, "phase", source.name, lane), pass_number)
        self.stride = 0
        self.passed: int | None = None
        # Whether no sample is left.
        self.used_up = False
        if state is None:
            self._numbers = [0, 0, 0, 0]
            while len(self._readers) < spread and self._exists(len(self._readers)):
                self._numbers += (len(self._readers), 0, 0)
                self._readers.append(self._read(len(self._readers), 0, 0, ahead=False))
            self._numbers[NEXT_K] = len(self._readers)
        else:
            self.passed = state.passed
            self._numbers = list(state.numbers)
            self._readers = [self._read(*block, ahead=False) for block in state.open]
        self.used_up = not self._readers
        # Samples left of the blocks that are open or ahead, and how few are too few.
        self._left = sum(reader.samples for reader in self._readers) - sum(self._numbers[BLOCKS + 1 :: 3])
        self._reserve = 0
        self._look_ahead(self._feed.ahead(self.name))

    def take(self) -> Sequence[Item] | None:
        """Return the next sample's documents, or None for a bad one that is skipped."""
        numbers, readers = self._numbers, self._readers
        if not self._picks:
            # Pull c picks by draw c, so that nothing but the count is state; reversed, to be popped.
            self._picks = draws(self._spread_key, numbers[PULLS], numbers[PULLS] + PICKS)[::-1].tolist()
        index = self._picks.pop() % len(readers)
        reader = readers[index]
        items = reader.take()
        numbers[PULLS] += 1
        if items:
            numbers[EMPTY] = 0
        block = BLOCKS + 3 * index
        taken = numbers[block + 1] + 1
        numbers[block + 1] = taken
        if taken == reader.samples:
            self._replace(index)
        elif taken == 1:
            numbers[block + 2] = reader.block_hash
        self._left -= 1
        if taken == reader.samples - NEAR or reader.samples <= NEAR:
            self._order_ahead(max(1, len(self._ahead)))
        elif self._left < self._reserve and len(self._ahead) < self._spread:
            self._order_ahead(len(self._ahead) + 1)
        return items

    def count_empty(self, *, bad: bool) -> tuple[int, int]:
        """Count a sample without documents; return how many in a row that makes, and how many bad ones in all."""
        self._numbers[EMPTY] += 1
        self._numbers[BAD] += bad
        return self._numbers[EMPTY], self._numbers[BAD]

    def state(self) -> SourceState:
        """Return the cursor's state."""
        return SourceState(self.name, self.passed, tuple(self._numbers))

    def close(self) -> None:
        """Give up all open blocks."""
        for reader in (*self._readers, *self._ahead):
            reader.close()

    def _exists(self, k: int) -> bool:
        return self._end is None or self._first + self._lanes * k < self._end

    def _read(self, k: int, taken: int, block_hash: int, *, ahead: bool) -> BlockReader:
        return self._feed.open(self.name, self._first + self._lanes * k, taken, block_hash, ahead=ahead)

    def _replace(self, index: int) -> None:
        """Put the next block in the place of one that is used up, or close the gap."""
        self._readers[index].close()
        block, k = BLOCKS + 3 * index, self._numbers[NEXT_K]
        if not self._exists(k):
            del self._readers[index]
            del self._numbers[block : block + 3]
            self.used_up = not self._readers
            return
        if self._ahead:
            self._readers[index] = self._ahead.popleft()
        else:
            self._readers[index] = self._read(k, 0, 0, ahead=False)
            self._left += self._readers[index].samples
        self._numbers[block : block + 3] = (k, 0, 0)
        self._numbers[NEXT_K] = k + 1
        self._look_ahead(self._feed.ahead(self.name))

    def _order_ahead(self, wanted: int) -> None:
        """Order the pages of `wanted` blocks ahead, or of as many as there are."""
        self._look_ahead(wanted)
        for following in self._ahead:
            following.expect()

    def _look_ahead(self, wanted: int) -> None:
        """Open blocks ahead until there are `wanted`, or no more."""
        while len(self._ahead) < wanted:
            k = self._numbers[NEXT_K] + len(self._ahead)
            if not self._exists(k):
                self._reserve = 0
                return
            self._ahead.append(self._read(k, 0, 0, ahead=True))
            self._left += self._ahead[-1].samples
        self._reserve = self._feed.reserve(self.name, sum(reader.samples for reader in self._readers))
