"""Ranks in lockstep, and what the oracle expects of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus import FORMATS, config_of, oracle_source, stage_of, with_sources, write_source
from hypothesis import strategies as st
from oracle import Oracle, Row
from oracle_plan import Plan
from plans import Case, make_samples

from zephon import Batch, Loader, Topology, merge_states, stream_digest
from zephon.config import Source

QUIET = {"kind": "inline", "prefetch": 0}
BACKENDS = (QUIET, {"kind": "inline", "prefetch": 3}, {"kind": "threads", "workers": 2, "prefetch": 2})


@dataclass(frozen=True)
class Written:
    """A case whose sources are files: its configuration and the plan that the oracle follows."""

    config: dict[str, Any]
    plan: Plan


def write_case(case: Case, forms: Mapping[str, str], folder: Path) -> Written:
    """Write a case's sources to files; `forms` says in which format each."""
    sources, corpora = {}, {}
    for name, shape in case.shapes.items():
        shards = make_samples(shape, case.plan.sequence_length)
        flat = shape.documents != "few" and case.plan.homogeneous != "group"
        paths = write_source(folder / name, shards, form=forms[name], flat=flat)
        sources[name] = Source(
            path=paths,
            stage=stage_of(forms[name], flat=flat, masked=shape.masked),
            block_samples=shape.block_samples,
            epochs=case.plan.sources[name].epochs,
        )
        corpora[name] = oracle_source(name, sources[name], shards, paths, index_dir=folder / "index")
    plan = with_sources(case.plan, corpora)
    return Written(config_of(plan, sources, index_dir=folder / "index"), plan)


def formats(case: Case) -> st.SearchStrategy[dict[str, str]]:
    """Return a strategy of a format for each of a case's sources."""
    return st.fixed_dictionaries({name: st.sampled_from(FORMATS) for name in case.shapes})


def sizes(lanes: int) -> list[int]:
    """Return data-parallel sizes that serve a number of lanes: divisors, and small multiples."""
    return [*(n for n in range(1, lanes + 1) if lanes % n == 0), *(lanes * m for m in (2, 3) if lanes * m <= 12)]


class Expected:
    """The oracle's rows of a stream, and its digest at every position; positions go on through passes."""

    def __init__(self, plan: Plan, *, count: int = 0, passes: int = 1) -> None:
        self._oracle = Oracle(plan)
        self._length = plan.length
        self.pulled: dict[str, int] = {}
        self.rows: list[Row] = []
        self.digests = [self._oracle.stream_digest(0)]
        self._source = self._oracle.rows(passes=None if plan.length is None else passes)
        if plan.length is None:
            self.grow(count)
        else:
            self.grow(plan.length * passes)

    def grow(self, count: int) -> None:
        """Make sure of `count` rows."""
        while len(self.rows) < count:
            self.rows.append(next(self._source))
            self.digests.append(self._oracle.stream_digest(len(self.rows)))


class Ranks:
    """All ranks of a topology, asked for one micro-batch after another."""

    def __init__(
        self, config: Mapping[str, Any], size: int, *, micro_batch: int = 1, state: Mapping[str, Any] | None = None
    ) -> None:
        self.size, self.micro_batch = size, micro_batch
        self.loaders = [
            Loader({**config, "micro_batch_size": micro_batch}, Topology(dp_rank=rank, dp_size=size))
            for rank in range(size)
        ]
        if state is not None:
            self.load(state)
        self.iterators = [iter(loader) for loader in self.loaders]

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        for loader in self.loaders:
            loader.close()

    @property
    def consumed(self) -> int:
        positions = {loader.consumed for loader in self.loaders}
        assert len(positions) == 1
        return positions.pop()

    def load(self, state: Mapping[str, Any]) -> None:
        for loader in self.loaders:
            loader.load_state_dict(state)

    def state(self, consumed: int | None = None) -> dict[str, Any]:
        """Return the whole state, merged of all ranks'."""
        return merge_states([loader.state_dict(consumed=consumed) for loader in self.loaders])

    def step(self) -> list[Batch] | None:
        """Return each rank's next micro-batch; None at a pass's end, which all ranks must reach together."""
        batches = [next(iterator, None) for iterator in self.iterators]
        ended = [batch is None for batch in batches]
        assert all(ended) or not any(ended), f"some ranks are at the pass's end, others not: {ended}"
        if any(ended):
            self.iterators = [iter(loader) for loader in self.loaders]
            return None
        return batches


def check_step(ranks: Ranks, expected: Expected, plan: Plan) -> bool:
    """Take a step of all ranks and hold each row to the oracle's; False at a pass's end."""
    start = ranks.consumed
    batches = ranks.step()
    if batches is None:
        return False
    base = 0 if plan.length is None else start - start % plan.length
    window = ranks.size * ranks.micro_batch
    if plan.length is None:
        expected.grow(start + window)
        assert ranks.consumed == start + window
    else:
        assert ranks.consumed == min(start + window, base + plan.length)
    seen = []
    for rank, batch in enumerate(batches):
        assert len(batch.sequences) == ranks.micro_batch
        for place, n in enumerate(batch.sequences):
            assert n % ranks.size == rank
            inside = plan.length is None or n < plan.length
            check_row(batch, place, expected.rows[base + n] if inside else None, plan)
        seen += batch.sequences
    assert sorted(seen) == list(range(start - base, start - base + window))
    return True


def check_row(batch: Batch, place: int, row: Row | None, plan: Plan) -> None:
    """Hold a row of a micro-batch to the oracle's; None: it must be masked padding."""
    length = plan.sequence_length
    tokens = [plan.pad] * plan.capacity if row is None else row.tokens
    loss_mask = [0] * length if row is None else row.loss_mask
    segments = [0, length] if row is None else row.cu_seqlens
    where = f"sequence {batch.sequences[place]}"
    assert batch["tokens"][place].tolist() == tokens[:-1], where
    assert batch["labels"][place].tolist() == tokens[1:], where
    assert batch["loss_mask"][place].tolist() == loss_mask, where
    low, high = place * length, (place + 1) * length
    assert [s - low for s in batch["cu_seqlens"].tolist() if low <= s <= high] == segments, where
    positions = [i - max(s for s in segments[:-1] if s <= i) for i in range(length)]
    assert batch["position_ids"][place].tolist() == positions, where


def check_state(state: Mapping[str, Any], expected: Expected) -> None:
    """Hold a whole state's digest to the oracle's at its position."""
    assert stream_digest(state) == expected.digests[state["consumed"]]
