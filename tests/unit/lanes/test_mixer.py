"""The mixture: exact for pulled tokens to one sample, with sources that end, leave and come back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lane_items import corpus, lane_of, plan
from msgspec.structs import replace
from oracle_plan import Plan
from recorded import RecordedFeed, spec_of

from zephon.errors import DataError
from zephon.item import Item
from zephon.lanes.mixer import Mixer, Pulled
from zephon.lanes.spec import LaneSpec
from zephon.state import decode_lane, encode_lane

LONGEST = 9


def mixer(made: Plan, *, spec: LaneSpec | None = None) -> Mixer:
    spec = spec or spec_of(made)
    return Mixer(spec, lane=0, pass_number=0, feed=RecordedFeed(made, spec, 0), pulled=Pulled())


def pull(mixing: Mixer, tokens: Counter[str]) -> None:
    """Pull a sample and count its tokens."""
    for item in mixing.pull(0) or ():
        tokens[item.source] += item.length


@given(
    weights=st.lists(st.integers(1, 50), min_size=2, max_size=4),
    lengths=st.lists(st.integers(1, LONGEST), min_size=8, max_size=20),
)
def test_pulled_tokens_are_in_proportion_to_one_sample(weights: list[int], lengths: list[int]) -> None:
    shares = {f"source{number}": weight for number, weight in enumerate(weights)}
    blocks = {name: [[lengths[(k + s) % len(lengths)] for s in range(5)] for k in range(9)] for name in shares}
    made = plan({name: corpus(own) for name, own in blocks.items()}, entries=[(0, dict(shares))])
    mixing, pulled = mixer(made), Counter[str]()
    for _ in range(200):
        pull(mixing, pulled)
        for a, b in pairwise(sorted(shares)):
            # In units of a weight: one sample of whichever pulled last, and phases of less than a mean (1 token).
            ahead = pulled[a] / shares[a] - pulled[b] / shares[b]
            assert -LONGEST / shares[b] - 1 / shares[a] < ahead < LONGEST / shares[a] + 1 / shares[b]


def test_by_samples_every_sample_counts_the_same() -> None:
    made = plan(
        {"long": corpus([[9] * 4] * 4), "none": corpus([[0] * 4] * 4), "short": corpus([[1] * 4] * 4)},
        entries=[(0, {"long": 2, "none": 1, "short": 1})],
    )
    spec = replace(spec_of(made), by_samples=True)
    mixing = mixer(made, spec=spec)
    for _ in range(400):
        mixing.pull(0)
    assert {state.name: state.pulls for state in mixing.states()} == {"long": 200, "none": 100, "short": 100}


def test_a_sample_without_documents_costs_next_to_nothing() -> None:
    made = plan({"empty": corpus([[0, 0, 0, 4]] * 4), "web": corpus([[4] * 4] * 4)})
    mixing, pulled = mixer(made), Counter[str]()
    for _ in range(500):
        pull(mixing, pulled)
    assert abs(pulled["empty"] - pulled["web"]) <= 8


def rows(made: Plan, count: int) -> list[str | None]:
    """Return the source of each row of a lane whose rows are single documents."""
    lane = lane_of(made)
    found = []
    for _ in range(count):
        row = lane.next()
        lane.state()
        found.append(None if row is None else row.spans[0].item.source)
    return found


def test_an_entry_holds_from_its_sequence_on() -> None:
    made = plan({"a": corpus([[9] * 4] * 4), "b": corpus([[9] * 4] * 4)}, entries=[(0, {"a": 1}), (5, {"b": 1})])
    assert rows(made, 9) == ["a"] * 5 + ["b"] * 4


def test_the_next_entry_is_taken_early_when_all_sources_are_used_up() -> None:
    made = plan(
        {"a": corpus([[9] * 3], epochs=1), "b": corpus([[9] * 2], epochs=1), "c": corpus([[9] * 4] * 4)},
        entries=[(0, {"a": 1}), (100, {"b": 1}), (200, {"c": 1}), (300, {"a": 1})],
    )
    lane = lane_of(made)
    found = []
    for _ in range(8):
        row = lane.next()
        assert row is not None
        found.append((row.spans[0].item.source, lane.state().entry))
    assert found == [("a", 0)] * 3 + [("b", 1)] * 2 + [("c", 2)] * 3


def test_a_lane_whose_last_entry_is_used_up_is_dry() -> None:
    made = plan({"a": corpus([[9] * 3], epochs=2)}, entries=[(0, {"a": 1}), (4, {"a": 1})])
    assert rows(made, 8) == ["a"] * 6 + [None] * 2


def test_a_source_that_leaves_and_comes_back_goes_on_where_it_was() -> None:
    blocks = [[9] * 5 for _ in range(6)]
    made = plan(
        {"a": corpus(blocks, epochs=1), "b": corpus(blocks)},
        entries=[(0, {"a": 1, "b": 1}), (10, {"b": 1}), (20, {"a": 1, "b": 1})],
    )
    lane = lane_of(made)
    seen: list[Item] = []
    states = {}
    for sequence in range(70):
        row = lane.next()
        assert row is not None
        seen += [span.item for span in row.spans if span.item.source == "a"]
        states[sequence + 1] = {state.name: state for state in lane.state().sources}
    before, during, after = states[10]["a"], states[15]["a"], states[25]["a"]
    assert before.passed is not None
    assert during.passed is None
    assert after.passed is not None
    # While it is away nothing of it moves: open blocks, next block and counters wait.
    assert (during.open, during.next_k, during.pulls) == (before.open, before.next_k, before.pulls)
    assert after.pulls > before.pulls
    references = [(item.q, item.sample) for item in seen]
    assert sorted(references) == [(q, sample) for q in range(6) for sample in range(5)]


def test_a_source_that_joins_takes_no_more_than_its_share() -> None:
    blocks = [[9] * 5 for _ in range(6)]
    made = plan({"a": corpus(blocks), "b": corpus(blocks)}, entries=[(0, {"a": 1}), (50, {"a": 1, "b": 1})])
    found = rows(made, 90)
    assert found[:50] == ["a"] * 50
    # It starts at the lowest pass, not at zero: what it missed before is not made up for.
    assert abs(found[50:].count("b") - found[50:].count("a")) <= 1


def test_ties_go_to_the_first_name() -> None:
    made = plan({"b": corpus([[9] * 4] * 4), "a": corpus([[9] * 4] * 4)})
    mixing, pulled = mixer(made), Counter[str]()
    for cursor in mixing._cursors.values():
        cursor.passed = 7
    pull(mixing, pulled)
    assert set(pulled) == {"a"}


def test_max_empty_samples_in_a_row_raise() -> None:
    made = plan({"web": corpus([[9, 0, 0, 0, 0]] * 8)})
    spec = replace(spec_of(made), max_empty=40)
    mixing = mixer(made, spec=spec)
    for _ in range(200):
        mixing.pull(0)  # never 40 in a row: a sample with a document begins the count anew
    empty = plan({"web": corpus([[0] * 5])})
    mixing = mixer(empty, spec=replace(spec_of(empty), max_empty=40))
    for _ in range(39):
        mixing.pull(0)
    with pytest.raises(DataError, match=r"^source web: 40 samples in a row gave no document \(lane 0\); .*max_empty$"):
        mixing.pull(0)


class BadFeed(RecordedFeed):
    """Recorded blocks in which samples without a document are bad ones."""

    def open(self, source: str, q: int, taken: int, block_hash: int, *, ahead: bool):
        reader = super().open(source, q, taken, block_hash, ahead=ahead)
        real = reader.take

        def take() -> Sequence[Item] | None:
            return real() or None

        reader.take = take  # type: ignore[method-assign]
        return reader


def test_bad_samples_are_counted_up_to_their_limit() -> None:
    made = plan({"web": corpus([[9, 0, 9, 0, 9]] * 3)})
    spec = replace(spec_of(made), max_bad=5)
    mixing = Mixer(spec, lane=0, pass_number=0, feed=BadFeed(made, spec, 0), pulled=Pulled())
    while mixing.states()[0].bad < 5:
        mixing.pull(0)
    with pytest.raises(
        DataError, match=r"^source web: 6 bad samples in lane 0, more than max_bad_samples=5; .*raise the limit$"
    ):
        pull_all(mixing)


def pull_all(mixing: Mixer) -> None:
    while mixing.pull(0) is not None:
        pass


def test_a_restored_mixture_has_forgotten_nothing() -> None:
    blocks = [[3, 0, 9, 7, 1] for _ in range(8)]
    made = plan(
        {"a": corpus(blocks, epochs=1), "b": corpus(blocks, mean_tokens=5), "c": corpus(blocks)},
        entries=[(0, {"a": 3, "b": "0.7"}), (9, {"b": 1}), (17, {"a": 1, "b": 2, "c": 5}), (40, {"c": 1})],
    )
    straight, stopped = lane_of(made), lane_of(made)
    for _ in range(60):
        stopped = lane_of(made, state=decode_lane(encode_lane(stopped.state())), look=2)
        straight.next()
        stopped.next()
        assert encode_lane(stopped.state()) == encode_lane(straight.state())
