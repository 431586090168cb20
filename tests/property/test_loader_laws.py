"""The stream is the page's under every topology, micro-batch size, prefetch depth and backend."""

from __future__ import annotations

import tempfile
from pathlib import Path

from drive import BACKENDS, Expected, Ranks, check_state, check_step, formats, sizes, write_case
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import cases
from profiles import examples

ROWS = 30


@settings(max_examples=examples(60))
@given(data=st.data())
def test_every_topology_delivers_the_page_s_rows(data: st.DataObject) -> None:
    case = data.draw(cases(finite=False))
    forms = data.draw(formats(case))
    with tempfile.TemporaryDirectory() as folder:
        written = write_case(case, forms, Path(folder))
        expected = Expected(written.plan, count=ROWS)
        for size in data.draw(st.lists(st.sampled_from(sizes(case.plan.lanes)), min_size=1, max_size=2)):
            micro_batch = data.draw(st.integers(1, 3))
            config = {**written.config, "backend": data.draw(st.sampled_from(BACKENDS))}
            with Ranks(config, size, micro_batch=micro_batch) as ranks:
                while ranks.consumed < ROWS:
                    assert check_step(ranks, expected, written.plan)
                check_state(ranks.state(), expected)


@settings(max_examples=examples(60))
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
