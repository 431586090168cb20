"""Long histories of crashes, resizes, slow workers and failing stores, held to the oracle row by row."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from typing import Any

import pytest
from drive import Expected, Ranks, Written, check_state, check_step, formats, sizes, write_case
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import cases
from profiles import examples
from simulated import FaultyDisk

from zephon import StoreError
from zephon.stores import local, select

EVENTS = 60
LIMIT = 150


class History:
    """One training run: its checkpoints, its crashes, and the ranks of its present life."""

    def __init__(self, written: Written, seed: int) -> None:
        self._written = written
        self._seed = seed
        self._chance = Random(seed)
        plan = written.plan
        passes = 1 if plan.length is None else 1 + LIMIT // plan.length
        self._expected = Expected(plan, count=0, passes=passes)
        self._checkpoints: list[dict[str, Any] | None] = [None]
        self._lives = 0
        self.crashes = 0

    def run(self) -> None:
        """Live until all events have happened."""
        events = 0
        while events < EVENTS:
            self._lives += 1
            events += 1
            try:
                with self._born() as ranks:
                    while events < EVENTS and self._alive(ranks):
                        events += 1
            except StoreError:
                self.crashes += 1

    def _born(self) -> Ranks:
        """Return ranks of a new size that go on from one of the last checkpoints."""
        chance = self._chance
        # Each life has its own faults and its own order of finishing; some have real threads.
        simulated = {"kind": f"simulated:Life_{self._seed}_{self._lives}", "prefetch": chance.choice([0, 0, 1])}
        threads = {"kind": "threads", "workers": 2, "prefetch": 2}
        config = {
            **self._written.config,
            "backend": simulated if chance.random() < 0.8 else threads,
            "memory_bytes": chance.choice([1, 1 << 12, 1 << 29]),
        }
        size = chance.choice([size for size in sizes(self._written.plan.lanes) if size <= 6])
        state = chance.choice(self._checkpoints[-3:])
        return Ranks(config, size, micro_batch=chance.choice([1, 1, 2, 3]), state=state)

    def _alive(self, ranks: Ranks) -> bool:
        """Let one event happen; False where it was death."""
        chance = self._chance.random()
        if chance < 0.1 or ranks.consumed > LIMIT - 20:
            return False
        if chance < 0.3:
            state = ranks.state()
            check_state(state, self._expected)
            self._checkpoints.append(state)
        elif chance < 0.36 and self._checkpoints[-1] is not None:
            ranks.load(self._checkpoints[-1])
        else:
            self._step(ranks)
        return True

    def _step(self, ranks: Ranks) -> None:
        before = ranks.consumed
        try:
            check_step(ranks, self._expected, self._written.plan)
        except StoreError:
            # Whoever failed stands where it stood, can say so, and fails again rather than skip a row.
            failed = [loader for loader in ranks.loaders if loader.consumed == before]
            assert failed
            for loader in failed:
                assert loader.state_dict()["consumed"] == before
            raise


@settings(max_examples=examples(20))
@given(data=st.data())
def test_no_history_changes_the_stream(data: st.DataObject) -> None:
    case = data.draw(cases())
    forms = data.draw(formats(case))
    seed = data.draw(st.integers(0, 1 << 31), label="seed")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        written = write_case(case, forms, Path(folder))
        store = local.LocalStore(sleep=lambda _: None)
        patch.setattr(select, "_local", lambda: store)
        patch.setattr(local, "os", FaultyDisk(Random(seed)))
        try:
            History(written, seed).run()
        finally:
            patch.undo()
            store.close()
