"""Each sample once an epoch, each token in a row once, and the mixture as it was asked for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_mixing import integers
from oracle_plan import Plan
from plans import Case, cases
from profiles import examples
from recorded import RecordedFeed, pieces_of, spec_of

from zephon.lanes.lane import Lane

Reference = tuple[str, int, int, int]


def until_dry(plan: Plan) -> list[list[list[tuple[str, int, int, int, int, int, int]]]]:
    """Return the pieces of every row of every lane, until all are dry."""
    spec = spec_of(plan)
    lanes = []
    for number in range(plan.lanes):
        lane = Lane(spec, number, RecordedFeed(plan, spec, 1))
        rows = []
        while (row := pieces_of(lane.next())) is not None:
            rows.append(row)
            lane.state()
        lanes.append(rows)
    return lanes


def ending(case: Case, epochs: int) -> Plan:
    """Return the case's plan with one mixture of all its sources, each of `epochs` epochs."""
    names = sorted(case.plan.sources)
    weights = {name: 1 + place for place, name in enumerate(names)}
    sources = {name: replace(corpus, epochs=epochs) for name, corpus in case.plan.sources.items()}
    return replace(case.plan, sources=sources, entries=((0, weights),))


def lengths_of(plan: Plan) -> Counter[tuple[str, int, int, int]]:
    """Return how often each (source, block's samples, sample, document) with its length is due, over all epochs."""
    due: Counter = Counter()
    for name, corpus in plan.sources.items():
        for number, block in enumerate(corpus.blocks):
            for sample, docs in enumerate(block):
                for part, doc in enumerate(docs):
                    length = len(doc.tokens)
                    if plan.long == "drop" and length > plan.capacity:
                        continue
                    if plan.long == "truncate":
                        length = min(length, plan.capacity)
                    due[name, number, sample, part, length] += corpus.epochs
    return due


@settings(max_examples=examples(80))
@given(case=cases(finite=False), epochs=st.integers(1, 3))
def test_every_document_of_every_sample_is_in_a_row_once_an_epoch(case: Case, epochs: int) -> None:
    plan = ending(case, epochs)
    spec = spec_of(plan)
    places = {source.name: source for source in spec.sources}
    tokens: dict[Reference, list[int]] = {}
    for rows in until_dry(plan):
        for row in rows:
            for source, q, sample, part, start, stop, _ in row:
                tokens.setdefault((source, q, sample, part), []).extend(range(start, stop))
    given_out: Counter = Counter()
    for (source, q, sample, part), found in tokens.items():
        # In order and without a gap; only concat's edge token comes twice.
        seen = sorted(set(found))
        assert seen == list(range(len(seen)))
        assert found == seen or plan.kind == "concat"
        assert found == sorted(found)
        assert max(Counter(found).values()) <= (2 if plan.kind == "concat" else 1)
        _, block, _ = places[source].place(plan.seed, q)
        given_out[source, block, sample, part, len(seen)] += 1
    assert given_out == lengths_of(plan)


@settings(max_examples=examples(80))
@given(case=cases(finite=False))
def test_rows_are_in_bounds_aligned_and_of_one_group(case: Case) -> None:
    plan = ending(case, 1)
    for rows in until_dry(plan):
        for row in rows:
            end = 0
            for *_, start, stop, offset in row:
                assert start < stop
                assert offset == -(-end // plan.align) * plan.align
                end = offset + stop - start
            assert row
            assert end <= plan.capacity
            if plan.homogeneous == "source":
                assert len({source for source, *_ in row}) == 1
            if isinstance(plan.homogeneous, dict):
                groups = {g for source, *_ in row for g, names in plan.homogeneous.items() if source in names}
                assert len(groups) == 1


@settings(max_examples=examples(60))
@given(case=cases(finite=False))
def test_concat_wastes_nothing_and_every_token_is_a_label_once(case: Case) -> None:
    plan = replace(ending(case, 1), kind="concat", align=1, homogeneous="none")
    for rows in until_dry(plan):
        # The last row is whatever was left; all before are full.
        assert all(sum(stop - start for *_, start, stop, _ in row) == plan.capacity for row in rows[:-1])
        labels = Counter(
            (*reference, start + i)
            for row in rows
            for *reference, start, stop, offset in row
            for i in range(stop - start)
            if offset + i > 0
        )
        assert all(count == 1 for count in labels.values())
        pulled = {(*reference, i) for row in rows for *reference, start, stop, _ in row for i in range(start, stop)}
        # The stream's first token is nobody's label.
        assert len(pulled) - len(labels) == (1 if rows else 0)


@settings(max_examples=examples(80))
@given(case=cases(finite=False), lane=st.integers(0, 11))
def test_the_mixture_is_exact_to_one_sample_a_lane(case: Case, lane: int) -> None:
    plan = replace(
        case.plan,
        entries=(case.plan.entries[0],),
        by="tokens",
        sources={name: replace(corpus, epochs=None) for name, corpus in case.plan.sources.items()},
    )
    spec = spec_of(plan)
    feed = RecordedFeed(plan, spec, 0)
    planner = Lane(spec, lane % plan.lanes, feed)
    weights = integers(plan.entries[0][1])
    # In tokens by weight: no source may run ahead of another by more than a pull and their first phases.
    means = {name: Fraction(plan.sources[name].mean_tokens, weights[name]) for name in weights}
    pulls = {name: Fraction(largest_sample(plan, name), weights[name]) for name in weights}
    bound = max([*means.values(), *pulls.values()]) + max(means.values())
    for _ in range(20):
        planner.next()
        shares = [Fraction(feed.charged.get(name, 0), 1024 * weights[name]) for name in weights]
        # Strides are rounded down: by less than a millionth.
        assert max(shares) - min(shares) <= bound + max(shares) / 10**6


def largest_sample(plan: Plan, name: str) -> int:
    sizes = [0]
    for block in plan.sources[name].blocks:
        for docs in block:
            lengths = [len(doc.tokens) for doc in docs]
            if plan.long == "truncate":
                lengths = [min(length, plan.capacity) for length in lengths]
            elif plan.long == "drop":
                lengths = [length for length in lengths if length <= plan.capacity]
            sizes.append(sum(lengths))
    return max(sizes)
