"""Processes for stages, and a process for the engine, deliver and save what a single thread does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from drive import Expected, Ranks, Written, check_state, check_step, write_case
from oracle_plan import Corpus, Plan
from plans import Case, Shape

ROWS = 40
CHANGES: dict[str, dict[str, Any]] = {
    "processes": {"backend": {"kind": "processes", "workers": 2, "prefetch": 2}},
    "engine process": {"backend": {"kind": "threads", "workers": 2, "prefetch": 2}, "engine": "process"},
    "both": {"backend": {"kind": "processes", "workers": 1, "prefetch": 1}, "engine": "process"},
}


def written(folder: Path, *, length: int | None) -> Written:
    shapes = {
        "code": Shape((11, 7, 3), block_samples=3, documents="few", lengths="mixed", masked=True, groups=2, seed=1),
        "web": Shape((12, 12), block_samples=5, documents="one", lengths="short", masked=False, groups=1, seed=2),
    }
    plan = Plan(
        seed=99,
        lanes=6,
        sequence_length=24,
        sources={name: Corpus((), epochs=1 if length else None) for name in shapes},
        entries=((0, {"code": "0.3", "web": "0.7"}), (25, {"web": 1, "code": 2})),
        kind="best_fit_split",
        pool=5,
        shuffles=(4,),
        length=length,
    )
    return write_case(Case(plan, shapes), {"code": "parquet", "web": "jsonl.zst"}, folder)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_endless_stream_is_the_same_stopped_and_gone_on_with(change: dict[str, Any], tmp_path: Path) -> None:
    case = written(tmp_path, length=None)
    expected = Expected(case.plan, count=ROWS)
    with Ranks({**case.config, **change}, 2, micro_batch=2) as ranks:
        for _ in range(4):
            assert check_step(ranks, expected, case.plan)
        state = ranks.state(consumed=12)
        check_state(state, expected)
    with Ranks(case.config, 3, state=state) as ranks:
        for _ in range(3):
            assert check_step(ranks, expected, case.plan)
        state = ranks.state()
    with Ranks({**case.config, **change}, 1, micro_batch=3, state=state) as ranks:
        while ranks.consumed < ROWS:
            assert check_step(ranks, expected, case.plan)
        check_state(ranks.state(), expected)


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_finite_stream_is_the_same_in_every_pass(change: dict[str, Any], tmp_path: Path) -> None:
    case = written(tmp_path, length=29)
    expected = Expected(case.plan, passes=2)
    with Ranks({**case.config, **change}, 2, micro_batch=2) as ranks:
        for number in range(2):
            steps = 0
            while check_step(ranks, expected, case.plan):
                steps += 1
            assert steps == 8
            assert ranks.consumed == 29 * (number + 1)
        check_state(ranks.state(), expected)
