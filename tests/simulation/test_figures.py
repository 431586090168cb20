"""The figures that the planner promises, on made-up lengths: 500 tokens a document on average, rows of 4,096."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from zephon.config import Pack
from zephon.item import Item, Row
from zephon.lanes.lane import Lane
from zephon.lanes.spec import EntrySpec, LaneSpec, SourceSpec
from zephon.state.lane_codec import encode_lane

CAPACITY = 4097
WEIGHTS = {"code": 3, "web": 5, "wiki": 2}
POOL = 32
NUM_LENGTHS = 100_003


class MadeUpFeed:
    """Blocks of 64 samples of one document each; lengths are lognormal with a mean of 500 tokens."""

    def __init__(self, seed: int) -> None:
        drawn = np.random.Generator(np.random.Philox(seed)).lognormal(math.log(500) - 0.5, 1.0, NUM_LENGTHS)
        self.lengths = np.maximum(1, drawn).astype(np.int64).tolist()

    def open(self, source: str, q: int, taken: int, block_hash: int, *, ahead: bool) -> MadeUpReader:
        return MadeUpReader(self, source, q, taken)

    def ahead(self, source: str) -> int:
        return 0

    def reserve(self, source: str, samples: int) -> int:
        return 0


class MadeUpReader:
    samples = 64
    block_hash = 0x1234_5678_9ABC_DEF0

    def __init__(self, feed: MadeUpFeed, source: str, q: int, taken: int) -> None:
        self._feed, self._source, self._q, self._taken = feed, source, q, taken

    def take(self) -> Sequence[Item]:
        sample = self._taken * 37 % 64
        self._taken += 1
        length = self._feed.lengths[(self._q * 64 + sample) % NUM_LENGTHS]
        return (Item(self._source, self._q, sample, 0, 0, length, (), self.block_hash),)

    def expect(self) -> None:
        pass

    def close(self) -> None:
        pass


def spec(*, lanes: int = 64) -> LaneSpec:
    return LaneSpec(
        seed=1,
        lanes=lanes,
        capacity=CAPACITY,
        sources=tuple(
            SourceSpec(name=name, num_blocks=1_000_000, block_samples=[64], mean_tokens=500, epochs=None)
            for name in sorted(WEIGHTS)
        ),
        entries=(EntrySpec(start=0, weights=WEIGHTS),),
        by_samples=False,
        spread=4,
        max_empty=1000,
        max_bad=None,
        pack=Pack(pool=POOL),
        operators=(),
        metadata=dict.fromkeys(WEIGHTS, ()),
    )


def tokens(row: Row) -> int:
    return sum(span.stop - span.start for span in row.spans)


def test_best_fit_fills_its_rows() -> None:
    lane = Lane(spec(), 7, MadeUpFeed(1))
    rows = [lane.next() for _ in range(3000)]
    filled = sum(tokens(row) for row in rows if row is not None)
    assert filled / (3000 * CAPACITY) >= 0.997


def test_no_document_waits_more_than_the_pool_has_rows() -> None:
    lane = Lane(spec(), 3, MadeUpFeed(2))
    since: dict[tuple[str, int, int], int] = {}
    longest = 0
    for number in range(3000):
        row = lane.next()
        assert row is not None
        for span in row.spans:
            reference = (span.item.source, span.item.q, span.item.sample)
            longest = max(longest, number - since.pop(reference, number))
        for item in lane.state().operators[0].held:
            since.setdefault((item.source, item.q, item.sample), number)
    assert 0 < longest <= POOL


def test_the_mixture_is_exact_as_pulled_and_near_as_delivered() -> None:
    pulled: Counter[str] = Counter()
    delivered: Counter[str] = Counter()
    feed = MadeUpFeed(3)
    for number in range(64):
        own: Counter[str] = Counter()
        lane = Lane(spec(), number, feed, pulled=own)
        for _ in range(100):
            row = lane.next()
            assert row is not None
            for span in row.spans:
                delivered[span.item.source] += span.stop - span.start
            for name, weight in WEIGHTS.items():
                # One sample and the phase, which is less than a mean sample's stride, is all that a lane may be off.
                assert abs(own[name] - own.total() * weight / 10) <= max(feed.lengths) + 500 * 10 / weight
        pulled += own
    for name, weight in WEIGHTS.items():
        assert pulled[name] / pulled.total() == pytest.approx(weight / 10, abs=0.005)
        assert delivered[name] / delivered.total() == pytest.approx(weight / 10, abs=0.01)


def test_a_lane_s_state_is_under_a_kilobyte_however_far_it_has_come() -> None:
    lane = Lane(spec(), 63, MadeUpFeed(4))
    sizes = {}
    for step in range(1, 100_001):
        lane.next()
        if step in (10, 1000, 100_000):
            sizes[step] = len(encode_lane(lane.state()))
        elif step % 100 == 0:
            sizes[0] = max(sizes.get(0, 0), len(encode_lane(lane.state())))
    assert max(sizes.values()) <= 1024, sizes
    assert sizes[100_000] <= sizes[10] + 100
