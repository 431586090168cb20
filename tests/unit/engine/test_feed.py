"""The feed: how much it reads follows from memory and time, and what it gives doesn't."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from zephon.config import Pack
from zephon.engine.appetite import appetite
from zephon.engine.block_pages import uneven
from zephon.engine.feed import PageFeed
from zephon.errors import DataError, StateError
from zephon.lanes.spec import EntrySpec, LaneSpec, SourceSpec
from zephon.page import Location, Order, Page

SAMPLES = 64


class OneBlock:
    def location(self, block: int) -> Location:
        return Location("shard", "tar", 0, 0, -1, 0, SAMPLES)


class Scripted:
    """A backend whose pages hold a document of sample + 1 tokens for each sample, made in a given time."""

    def __init__(self, *, sample_s: float = 0.0, block_hash: int = 7, bad: int | None = None) -> None:
        self.orders: list[Order] = []
        self._sample_s, self._block_hash, self._bad = sample_s, block_hash, bad

    def submit(self, order: Order) -> int:
        self.orders.append(order)
        return len(self.orders) - 1

    def take(self, ticket: int) -> Page:
        samples = self.orders[ticket].samples
        lengths = np.array([0 if sample == self._bad else sample + 1 for sample in samples])
        tokens = np.concatenate([np.arange(length, dtype=np.uint32) for length in lengths])
        counts = (lengths > 0).astype(np.int32)
        offsets = np.concatenate(([0], np.cumsum(lengths[lengths > 0])))
        bad = tuple((place, "torn") for place, sample in enumerate(samples) if sample == self._bad)
        return Page(tokens, offsets, counts, None, None, bad, self._block_hash, self._sample_s * len(samples))

    def drop(self, ticket: int) -> None:
        pass

    def close(self) -> None:
        pass


def feed_of(backend: Scripted, *, limit_bytes: int = 1 << 30, long: str = "split", skip_bad: bool = False) -> PageFeed:
    spec = LaneSpec(
        seed=1,
        lanes=1,
        capacity=33,
        sources=(SourceSpec(name="web", num_blocks=9, block_samples=[SAMPLES] * 9, mean_tokens=32, epochs=None),),
        entries=(EntrySpec(start=0, weights={"web": 1}),),
        by_samples=False,
        spread=1,
        max_empty=10,
        max_bad=None,
        pack=Pack(long=long),  # type: ignore[arg-type]
        operators=(),
        metadata={"web": ()},
    )
    sizes = appetite(num_lanes=1, spread=1, workers=1, mean_tokens={"web": 32}, pages_bytes=1 << 30)
    return PageFeed(
        spec,
        {"web": OneBlock()},  # type: ignore[dict-item]
        backend,
        appetite=sizes,
        skip_bad=skip_bad,
        limit_bytes=limit_bytes,
    )


def given(feed: PageFeed) -> list[tuple[int, int, tuple[int, ...] | None]]:
    """Return (sample, length, tokens) of each document of the first block; tokens None: to be read again."""
    reader = feed.open("web", 0, 0, 0, ahead=False)
    found = []
    for _ in range(reader.samples):
        for item in reader.take() or ():
            payload = item.payload
            assert payload is not None
            tokens = None if payload.tokens is None else payload.tokens[item.place : item.place + item.length]
            found.append((item.sample, item.length, None if tokens is None else tuple(tokens.tolist())))
    return found


def test_a_slow_tokenizer_gets_small_pages_and_gives_the_same() -> None:
    fast, slow = Scripted(), Scripted(sample_s=0.005)
    assert given(feed_of(fast)) == given(feed_of(slow))
    assert [len(order.samples) for order in fast.orders] == [4, 60]
    assert {len(order.samples) for order in slow.orders[:-1]} <= set(range(4, 11))


def test_blocks_that_begin_together_run_out_of_their_pages_apart() -> None:
    backend = Scripted(sample_s=0.0025)
    feed = feed_of(backend)
    readers = [feed.open("web", q, 0, 0, ahead=False) for q in range(9)]
    for reader in readers:
        for _ in range(5):
            reader.take()
    later = [len(order.samples) for order in backend.orders if len(order.samples) > 4]
    assert len(later) == len(readers)
    assert min(later) >= 10
    assert max(later) <= 20
    assert len(set(later)) > 4


def test_uneven_sizes_spread_over_half_and_whole() -> None:
    assert {uneven(1, number) for number in range(100)} == {1}
    found = [uneven(16, number) for number in range(1000)]
    assert {size: 80 < found.count(size) < 140 for size in sorted(set(found))} == dict.fromkeys(range(8, 17), True)


def test_without_memory_documents_are_to_be_read_again() -> None:
    plenty, none = Scripted(), Scripted()
    with_tokens, without = given(feed_of(plenty)), given(feed_of(none, limit_bytes=0))
    assert [document[:2] for document in with_tokens] == [document[:2] for document in without]
    assert all(tokens == tuple(range(length)) for _, length, tokens in with_tokens)
    assert all(tokens is None for *_, tokens in without)


@pytest.mark.parametrize(("long", "longest", "count"), [("split", 64, 64), ("truncate", 33, 64), ("drop", 33, 33)])
def test_long_documents_are_what_the_policy_says(long: str, longest: int, count: int) -> None:
    documents = given(feed_of(Scripted(), long=long))
    assert max(length for _, length, _ in documents) == longest
    assert len(documents) == count


def test_a_bad_sample_is_raised_or_skipped_in_its_place() -> None:
    with pytest.raises(DataError, match=r"^source web: torn; mend it, or set on_bad_sample: skip$"):
        given(feed_of(Scripted(bad=5)))
    assert {sample for sample, *_ in given(feed_of(Scripted(bad=5), skip_bad=True))} == set(range(SAMPLES)) - {5}


def test_a_block_that_is_another_than_the_state_s_is_refused() -> None:
    reader = feed_of(Scripted(block_hash=8)).open("web", 0, 3, 7, ahead=False)
    with pytest.raises(StateError, match="hash to 0000000000000008, 0000000000000007 in the state"):
        reader.take()


def test_pages_shrink_where_a_stage_makes_more_of_a_sample_than_its_bytes_said() -> None:
    feed = feed_of(Scripted())
    assert feed.page_samples("web") == 4
    for size, expected in ((1 << 40, SAMPLES), (1024, 7), (1, 1)):
        feed._appetite = msgspec.structs.replace(feed._appetite, page_bytes=size, samples={"web": SAMPLES})
        # 64 documents of 32.5 tokens on average: 130 bytes a sample.
        feed.take(feed.backend.submit(Order("web", 0, 0, OneBlock().location(0), tuple(range(SAMPLES)))), "web")
        assert feed.page_samples("web") == expected
