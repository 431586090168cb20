"""Resume equals continue: anywhere, again and again, on other ranks, with other batches, on other backends."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Literal, NamedTuple

from drive import BACKENDS, QUIET, Expected, Ranks, Written, check_state, check_step, formats, sizes, write_case
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import Case, cases
from profiles import examples


class Leg(NamedTuple):
    """A run between two resumes: it takes steps, and its checkpoint is of the step `back` before the last.

    `reload` goes on from it in the same loaders first: "whole" from the merged state, "own" from each rank's part.
    """

    size: int
    micro_batch: int
    backend: dict[str, Any]
    steps: int
    back: int
    reload: Literal["no", "whole", "own"]


@st.composite
def legs(draw: st.DrawFn, lanes: int) -> list[Leg]:
    fitting = [size for size in sizes(lanes) if size <= 6]
    leg = st.builds(
        Leg,
        size=st.sampled_from(fitting),
        micro_batch=st.sampled_from([1, 1, 2, 3]),
        backend=st.sampled_from((QUIET, *BACKENDS)),
        steps=st.integers(0, 3),
        back=st.sampled_from([0, 0, 0, 1, 2]),
        reload=st.sampled_from(["no", "whole", "own"]),
    )
    return draw(st.lists(leg, min_size=10, max_size=12))


def straight_states(written: Written, count: int) -> dict[int, dict[str, Any]]:
    """Return the state at every position of a run that is never stopped, of one rank and one row a batch."""
    states = {}
    with Ranks({**written.config, "backend": QUIET}, 1) as ranks:
        states[0] = ranks.state()
        while ranks.consumed < count:
            if ranks.step() is not None:
                states[ranks.consumed] = ranks.state()
    return states


def run_legs(written: Written, chain: list[Leg], expected: Expected, straight: dict[int, dict[str, Any]]) -> None:
    plan = written.plan
    state = None
    for leg in chain:
        config = {**written.config, "backend": leg.backend}
        with Ranks(config, leg.size, micro_batch=leg.micro_batch, state=state) as ranks:
            positions = [ranks.consumed]
            for _ in range(leg.steps):
                if plan.length is not None and ranks.consumed + leg.size * leg.micro_batch > len(expected.rows):
                    break
                if check_step(ranks, expected, plan):
                    positions.append(ranks.consumed)
            position = positions[max(0, len(positions) - 1 - leg.back)]
            state = ranks.state(consumed=position)
            check_state(state, expected)
            consumed = state["consumed"]
            # A state is a function of plan and position: no trace of how the run came there. At a pass's
            # end it may be told before or after the turn to the next.
            at_turn = plan.length is not None and consumed % plan.length == 0
            if consumed in straight and not at_turn:
                assert state == straight[consumed]
            if leg.reload != "no":
                if leg.reload == "whole":
                    ranks.load(state)
                else:
                    for loader in ranks.loaders:
                        loader.load_state_dict(loader.state_dict(consumed=position))
                assert ranks.consumed == consumed
                if plan.length is None or consumed + leg.size * leg.micro_batch <= len(expected.rows):
                    check_step(ranks, expected, plan)


@settings(max_examples=examples(15))
@given(data=st.data())
def test_resume_equals_continue(data: st.DataObject) -> None:
    case: Case = data.draw(cases(finite=False))
    chain = data.draw(legs(case.plan.lanes))
    forms = data.draw(formats(case))
    with tempfile.TemporaryDirectory() as folder:
        written = write_case(case, forms, Path(folder))
        straight = straight_states(written, 60)
        run_legs(written, chain, Expected(written.plan, count=60), straight)


@settings(max_examples=examples(15))
@given(data=st.data())
def test_resume_equals_continue_in_any_pass(data: st.DataObject) -> None:
    case: Case = data.draw(cases(finite=True))
    chain = data.draw(legs(case.plan.lanes))
    forms = data.draw(formats(case))
    with tempfile.TemporaryDirectory() as folder:
        written = write_case(case, forms, Path(folder))
        expected = Expected(written.plan, passes=1 + 60 // written.plan.length)
        straight = straight_states(written, min(60, len(expected.rows)))
        run_legs(written, chain, expected, straight)
