"""The stream is the page's under every topology, micro-batch size, prefetch depth and backend."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from corpus import config_of, oracle_source, stage_of, write_source
from drive import BACKENDS, Expected, Ranks, check_state, check_step, formats, sizes, write_case
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import count_rows
from oracle_plan import Doc, Plan
from plans import Shape, cases, make_samples
from profiles import examples

from zephon import DataError, StateError, count_sequences
from zephon.config import Source

ROWS = 30


@settings(max_examples=examples(40))
@given(data=st.data())
def test_every_topology_delivers_the_page_s_rows(data: st.DataObject) -> None:
    case = data.draw(cases(finite=False))
    forms = data.draw(formats(case))
    with tempfile.TemporaryDirectory() as folder:
        written = write_case(case, forms, Path(folder))
        expected = Expected(written.plan, count=ROWS)
        for size in data.draw(st.lists(st.sampled_from(sizes(case.plan.lanes)), min_size=1, max_size=2)):
            micro_batch = data.draw(st.integers(1, 3))
            config = {
                **written.config,
                "backend": data.draw(st.sampled_from(BACKENDS)),
                # Next to nothing: documents that wait are read again when their row is due.
                "memory_bytes": data.draw(st.sampled_from([1, 512 << 20])),
            }
            with Ranks(config, size, micro_batch=micro_batch) as ranks:
                while ranks.consumed < ROWS:
                    assert check_step(ranks, expected, written.plan)
                check_state(ranks.state(), expected)


@settings(max_examples=examples(40))
@given(data=st.data())
def test_finite_streams_end_together_and_go_on_with_the_next_pass(data: st.DataObject) -> None:
    case = data.draw(cases(finite=True))
    forms = data.draw(formats(case))
    size = data.draw(st.sampled_from(sizes(case.plan.lanes)))
    micro_batch = data.draw(st.integers(1, 3))
    with tempfile.TemporaryDirectory() as folder:
        written = write_case(case, forms, Path(folder))
        plan = written.plan
        expected = Expected(plan, passes=3)
        config = {**written.config, "backend": data.draw(st.sampled_from(BACKENDS))}
        with Ranks(config, size, micro_batch=micro_batch) as ranks:
            for number in range(3):
                steps = 0
                while check_step(ranks, expected, plan):
                    steps += 1
                assert steps == -(-plan.length // (size * micro_batch))
                assert {len(loader) for loader in ranks.loaders} == {steps}
                assert ranks.consumed == (number + 1) * plan.length
                check_state(ranks.state(), expected)


@settings(max_examples=examples(20))
@given(data=st.data())
def test_a_counted_stream_ends_with_its_last_row(data: st.DataObject) -> None:
    case = data.draw(cases(finite=True))
    forms = data.draw(formats(case))
    with tempfile.TemporaryDirectory() as folder:
        written = write_case(case, forms, Path(folder))
        sources = {name: replace(c, epochs=c.epochs or 1) for name, c in written.plan.sources.items()}
        rows = count_rows(replace(written.plan, sources=sources))
        length = max(lane + written.plan.lanes * (count - 1) + 1 for lane, count in enumerate(rows) if count)
        plan = replace(written.plan, sources=sources, length=length)
        config = {**written.config, "length": "count"}
        size = data.draw(st.sampled_from(sizes(plan.lanes)))
        expected = Expected(plan, passes=1)
        # The last row of the stream is a real one: counting a row less would lose it.
        assert expected.rows[-1].planned
        with Ranks(config, size) as ranks:
            assert {loader.plan["length"] for loader in ranks.loaders} == {length}
            while check_step(ranks, expected, plan):
                pass
            assert ranks.consumed == length
            check_state(ranks.state(), expected)


def test_a_count_is_of_the_data_and_not_of_its_outline(tmp_path: Path) -> None:
    counts = []
    for number, lengths in enumerate(((7, 8, 9), (4, 4, 4))):
        shards = [[[Doc(tuple(range(length)))] for length in lengths]]
        # Members of a tar take multiples of 512 bytes, so that both shards have the same blocks.
        paths = write_source(tmp_path / str(number), shards, form="tar", flat=True)
        source = Source(path=paths, stage=stage_of("tar", flat=True, masked=False))
        plan = Plan(seed=1, lanes=1, sequence_length=8, sources={}, entries=((0, {"web": 1}),), pool=4)
        config = config_of(plan, {"web": source}, index_dir=tmp_path)
        counts.append(count_sequences({**config, "length": "count"}))
    assert counts == [3, 2]


@settings(max_examples=examples(15))
@given(data=st.data())
def test_a_mixture_ahead_may_change_and_none_that_began(data: st.DataObject) -> None:
    case = data.draw(cases(finite=False))
    forms = data.draw(formats(case))
    stop = data.draw(st.integers(1, 20))
    names = sorted(case.shapes)
    weights = {name: data.draw(st.integers(1, 9)) for name in names}
    with tempfile.TemporaryDirectory() as folder:
        written = write_case(case, forms, Path(folder))
        past = [entry for entry in written.plan.entries if entry[0] < stop]
        later = (data.draw(st.integers(stop, stop + 9)), weights)
        edited = replace(written.plan, entries=(*past, later))
        unused = {name for name in names if all(name not in entry[1] for entry in edited.entries)}
        assert not unused
        config = {
            **written.config,
            "mix": {"by": edited.by, "schedule": [{"from": f, "weights": w} for f, w in edited.entries[1:]]},
        }
        with Ranks(written.config, 1) as ranks:
            for _ in range(stop):
                ranks.step()
            state = ranks.state()
        expected = Expected(edited, count=stop + ROWS)
        with Ranks(config, 1, state=state) as ranks:
            while ranks.consumed < stop + ROWS:
                assert check_step(ranks, expected, edited)
            check_state(ranks.state(), expected)
        changed = {**config, "sources": {n: {**s, "weight": 0.123} for n, s in config["sources"].items()}}
        if len(names) > 1 and edited.entries[0][1] != dict.fromkeys(names, 1):
            with pytest.raises(StateError, match=r"^[^\n]*mix\.entries[^\n]*$"):
                Ranks({**changed, "seed": edited.seed}, 1, state=state)


def test_bad_samples_that_are_skipped_leave_no_trace_but_their_charge(tmp_path: Path) -> None:
    shape = Shape(shards=(9, 8), block_samples=4, documents="one", lengths="short", masked=False, groups=1, seed=5)
    shards = make_samples(shape, 8)
    paths = write_source(tmp_path, shards, form="jsonl", flat=True)
    damaged = {(0, 2), (0, 3), (1, 7)}
    for number, path in enumerate(paths):
        lines = Path(path).read_text().splitlines()
        for place in range(len(lines)):
            if (number, place) in damaged:
                lines[place] = ('{"tokens": "none"}', "{broken", '{"other": [1]}')[place % 3]
                shards[number][place] = []
        Path(path).write_text("\n".join(lines) + "\n")
    source = Source(path=paths, stage=stage_of("jsonl", flat=True, masked=False), block_samples=4)
    corpus = oracle_source("web", source, shards, paths, index_dir=tmp_path)
    plan = Plan(
        seed=3, lanes=3, sequence_length=8, sources={"web": corpus}, entries=((0, {"web": 1}),), kind="concat", spread=2
    )
    config = config_of(plan, {"web": source}, index_dir=tmp_path)
    expected = Expected(plan, count=ROWS)
    with Ranks({**config, "on_bad_sample": "skip"}, 3) as ranks:
        while ranks.consumed < ROWS:
            assert check_step(ranks, expected, plan)
        check_state(ranks.state(), expected)
        assert sum(loader.report()["bad_samples"]["web"] for loader in ranks.loaders) > 0
    with Ranks(config, 1) as ranks, pytest.raises(DataError, match=r"^[^\n]*shard-00\d\.jsonl, sample \d[^\n]*$"):
        take_rows(ranks)


def take_rows(ranks: Ranks) -> None:
    for _ in range(ROWS):
        ranks.step()
