"""Megatron layouts on real megatron-core: one sequence of global batches, whatever the layout and the resumes."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rank_processes import check_ended_well, run_ranks
from streams import samples, stream

from zephon import Loader

# One process for all of them, because they share a job's runs; and these take long on a busy machine.
pytestmark = [pytest.mark.xdist_group("megatron_layouts"), pytest.mark.timeout(900)]
PROGRAM = Path(__file__).parents[1] / "megatron_layouts.py"
LAYOUTS = {
    "DP4": {},
    "DP2×TP2": {"tp": 2},
    "DP2×PP2": {"pp": 2},
    "PP2×TP2": {"pp": 2, "tp": 2},
    "CP2×DP2": {"cp": 2},
}
BASE = {
    "dataloader_type": "external",
    "seq_length": 32,
    "micro_batch_size": 1,
    "global_batch_size": 12,
    "iteration": 0,
    "consumed_train_samples": 0,
    "eval_iters": 0,
    "load": None,
    "save": None,
    "dataloader_save": None,
}
STEPS = 3
RAMP = [4, 4, 24]

Told = list[list[dict[str, Any]]]


class Job:
    """Runs of one job: what they are to do, and what each rank told of each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = stream(
            folder / "data",
            sources={"code": samples("code", 200), "web": samples("web", 300)},
            settings={"lanes": 12, "pack": {"pool": 4, "align": 4}},
        )
        self.runs: dict[str, dict[str, Any]] = {}
        self.told: dict[str, list[dict[str, Any]]] = {}

    def add(self, name: str, layout: dict[str, int], *, steps: int = STEPS, **more: Any) -> None:
        args = {**BASE, **more.pop("args", {})}
        self.runs[name] = {"layout": layout, "steps": steps, "config": self.config, "args": args, **more}

    def go(self, *, world: int = 4) -> None:
        (self.folder / "runs.json").write_text(json.dumps(list(self.runs.values())))
        arguments = ["--runs", str(self.folder / "runs.json"), "--out", str(self.folder)]
        check_ended_well(run_ranks(PROGRAM, arguments, world=world, folder=self.folder / "processes", seconds=240))
        ranks = [json.loads((self.folder / f"rank{rank}.json").read_text()) for rank in range(world)]
        self.told = dict(zip(self.runs, zip(*ranks, strict=True), strict=True))  # type: ignore[arg-type]

    def rows(self, name: str, key: str) -> list[list[str]]:
        """Return the digests of each step's rows in the order of the stream, as the data-parallel ranks had them."""
        steps = []
        told = self.told[name]
        for number, step in enumerate(told[0]["steps"]):
            window: dict[int, str] = {}
            for rank in told:
                dp_rank, dp_size = rank["place"]["dp"], rank["dp_size"]
                own = [n for n in range(step["begin"], step["end"]) if n % dp_size == dp_rank]
                for chunk in rank["steps"][number]["chunks"]:
                    digests = [row for batch in chunk if batch is not None for row in batch[key]]
                    if not digests:
                        continue
                    for n, row in zip(own, digests, strict=True):
                        assert window.setdefault(n, row) == row, f"{name}: {key} of sequence {n} differs between ranks"
            assert sorted(window) == list(range(step["begin"], step["end"]))
            steps.append([window[n] for n in sorted(window)])
        return steps


def chain(job: Job, name: str, layouts: list[str], *, steps: int, ramp: list[int] | None, ends: list[int]) -> None:
    """Add runs that each resume where the one before them stopped, after `ends` sequences."""
    folder = str(job.folder / name)
    iteration, consumed = 0, 0
    for number, layout in enumerate(layouts):
        args = {"iteration": iteration, "consumed_train_samples": consumed, "dataloader_save": folder}
        job.add(f"{name} {number}: {layout}", LAYOUTS[layout], steps=steps, save=True, ramp=ramp, args=args)
        iteration, consumed = iteration + steps, ends[number]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    job = Job(tmp_path_factory.mktemp("job"))
    for name, layout in LAYOUTS.items():
        job.add(name, layout)
    job.add("DP4, rows of three", {}, args={"micro_batch_size": 3})
    job.add("DP4 by groups", {"tp": 2}, groups=True)
    job.add("replicas", {"tp": 2}, replicate=True)
    job.add("PP4", {"pp": 4})
    job.add("PP4 packed", {"pp": 4}, args={"sft": True})
    job.add("CP2×DP2 packed", {"cp": 2}, args={"sft": True})
    job.add("chunks", {"pp": 2, "vp": 2})
    job.add("masks", {"tp": 2}, args={"create_attention_mask_in_dataloader": True, "reset_attention_mask": True})
    chain(job, "chain", [*LAYOUTS, "DP4"], steps=2, ramp=None, ends=[24, 48, 72, 96, 120, 144])
    # 4 sequences a step at first, 4 more after each 12.
    chain(job, "ramp", ["DP4", "DP2×PP2", "PP2×TP2", "CP2×DP2"], steps=2, ramp=RAMP, ends=[8, 20, 40, 64])
    restored = {"iteration": 2, "consumed_train_samples": 24}
    foreign = job.folder / "foreign" / "iter_0000002" / "mp_rank_00"
    foreign.mkdir(parents=True)
    shutil.copy(Path(__file__), foreign / "train_dataloader_dprank000.pt")
    chained, nothing = str(job.folder / "chain"), str(job.folder / "nothing")
    job.add("missing", {}, args={**restored, "dataloader_save": nothing})
    job.add("foreign", {}, args={**restored, "dataloader_save": str(job.folder / "foreign")})
    job.add("elsewhere", {}, args={**restored, "consumed_train_samples": 36, "dataloader_save": chained})
    job.add("one rank has no folder", {}, args={**restored, "dataloader_load": chained}, folder_of_rank={"2": nothing})
    job.add("another plan", {}, args={**restored, "dataloader_save": chained})
    job.runs["another plan"]["config"] = {**job.config, "seed": 6}
    job.add("wrong align", {"cp": 4}, args={"sft": True})
    job.add("wrong loader", {}, args={"dataloader_type": "single"})
    job.add("no validation", {}, args={"eval_iters": 1})
    job.add("begins later", {}, args={"consumed_train_samples": 24, "iteration": 5, "zephon_begins_at": 24})
    job.go()
    return job


@pytest.fixture(scope="module")
def expected(job: Job) -> dict[str, list[str]]:
    """Return the digests of the stream's rows, from a loader iterated by hand."""
    rows: dict[str, list[str]] = {"tokens": [], "labels": [], "loss_mask": []}
    with Loader({**job.config, "micro_batch_size": 1}) as loader:
        for batch in loader:
            for key, digests in rows.items():
                digests.append(hashlib.sha256(batch[key][0].contiguous().numpy().tobytes()).hexdigest()[:16])
            if loader.consumed == 160:
                break
    assert len(set(rows["tokens"])) == 160
    return rows


def windows(digests: list[str], steps: list[tuple[int, int]]) -> list[list[str]]:
    return [digests[begin:end] for begin, end in steps]


@pytest.mark.parametrize(
    "name",
    [*LAYOUTS, "DP4, rows of three", "DP4 by groups", "replicas", "PP4", "PP4 packed", "CP2×DP2 packed", "chunks"],
)
def test_every_layout_sees_the_stream_s_global_batches(job: Job, expected: dict[str, list[str]], name: str) -> None:
    steps = [(step["begin"], step["end"]) for step in job.told[name][0]["steps"]]
    assert steps == [(12 * step, 12 * (step + 1)) for step in range(STEPS)]
    for key, digests in expected.items():
        assert job.rows(name, key) == windows(digests, steps), key


@pytest.mark.parametrize("name", ["chain", "ramp"])
def test_resumes_between_layouts_go_on_where_the_last_one_stopped(
    job: Job, expected: dict[str, list[str]], name: str
) -> None:
    position, sizes = 0, []
    for run in (run for run in job.runs if run.startswith(f"{name} ")):
        assert "error" not in job.told[run][0], job.told[run][0]
        assert job.told[run][0]["started_at"] == position
        steps = [(step["begin"], step["end"]) for step in job.told[run][0]["steps"]]
        sizes += [end - begin for begin, end in steps]
        for key, digests in expected.items():
            assert job.rows(run, key) == windows(digests, steps), f"{run}: {key}"
        position = steps[-1][1]
    assert sizes == ([12] * 12 if name == "chain" else [4, 4, 4, 8, 8, 12, 12, 12])


@pytest.mark.parametrize("name", ["DP2×TP2", "DP2×PP2", "PP2×TP2", "CP2×DP2", "replicas", "masks", "CP2×DP2 packed"])
def test_peers_see_byte_identical_micro_batches(job: Job, name: str) -> None:
    by_rank: dict[int, list[Any]] = {}
    for rank in job.told[name]:
        for step in rank["steps"]:
            for chunk in step["chunks"]:
                assert all(batch is not None for batch in chunk)
        by_rank.setdefault(rank["place"]["dp"], []).append([step["chunks"] for step in rank["steps"]])
    assert sum(len(peers) for peers in by_rank.values()) == 4
    for peers in by_rank.values():
        assert len(peers) > 1
        assert all(peer == peers[0] for peer in peers)
    assert ("attention_mask" in by_rank[0][0][0][0][0]) is (name == "masks")
    assert ("cu_seqlens" in by_rank[0][0][0][0][0]) is ("packed" in name)


def test_middle_stages_read_only_packed_rows(job: Job) -> None:
    assert [rank["reads"] for rank in job.told["PP4"]] == [True, False, False, True]
    assert [rank["reads"] for rank in job.told["PP4 packed"]] == [True] * 4
    # Iterations that are skipped call `next` on every stage.
    middle = [rank["steps"] for rank in job.told["PP4"] if rank["place"]["pp"] in (1, 2)]
    assert all(batch is None for steps in middle for step in steps for chunk in step["chunks"] for batch in chunk)


def test_of_model_chunks_the_outermost_read(job: Job) -> None:
    for rank in job.told["chunks"]:
        given = [chunk[0] is not None for chunk in rank["steps"][0]["chunks"]]
        assert given == ([True, False] if rank["place"]["pp"] == 0 else [False, True])


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("missing", "StateError", "the checkpoint of iteration 2 has no state of the stream"),
        ("foreign", "StateError", "no state of Zephon's"),
        ("elsewhere", "StateError", "state is at sequence 24, the trainer at 36"),
        ("another plan", "StateError", "seed is 5 in the state and 6 here"),
        ("one rank has no folder", "StateError", "on rank 2"),
        ("wrong align", "ConfigError", "pack.align=4, but packed rows with cp_size=4"),
        ("wrong loader", "ConfigError", "--dataloader-type is single"),
        ("no validation", "ConfigError", "there is no validation stream"),
    ],
)
def test_what_can_t_be_gone_on_with_stops_all_ranks(job: Job, name: str, kind: str, message: str) -> None:
    told = job.told[name]
    assert [rank.get("error") for rank in told] == [kind] * 4
    if name == "one rank has no folder":
        assert "iteration 2 has no state" in told[2]["message"]
        told = [told[0], told[1], told[3]]
    for rank in told:
        assert message in rank["message"]
        assert "\n" not in rank["message"]


def test_a_stream_may_begin_in_the_midst_of_a_run(job: Job, expected: dict[str, list[str]]) -> None:
    steps = job.told["begins later"][0]["steps"]
    assert [(step["begin"], step["end"]) for step in steps] == [(24, 36), (36, 48), (48, 60)]
    assert job.rows("begins later", "tokens") == windows(expected["tokens"], [(0, 12), (12, 24), (24, 36)])
