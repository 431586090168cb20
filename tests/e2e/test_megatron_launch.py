"""The launcher on whole jobs: a script of Megatron-LM's shape, real processes, megatron-core's own groups."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from rank_processes import Ended, check_ended_well, run_ranks
from streams import samples, stream
from zephon_megatron import Form, gpt_batch

from zephon import Loader

TESTS = Path(__file__).parents[1]
PROGRAM = TESTS / "launched_rank.py"
SCRIPT = TESTS / "megatron_lm" / "pretrain_gpt.py"
CONFIGS = TESTS.parent / "configs" / "megatron"
BATCH = 8
# Between the commands that one process runs, one after the other.
NEXT = "---"


def launched(folder: Path, words: list[str], *, world: int) -> list[Ended]:
    return run_ranks(PROGRAM, words, world=world, folder=folder, seconds=120)


def told_of(folder: Path, world: int) -> list[dict[str, Any]]:
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(world)]


def global_batches(told: list[dict[str, Any]], *, micro: int) -> list[list[str]]:
    """Return each step's rows in the stream's order, from what the first tensor-parallel ranks were given."""
    ranks = {one["dp_rank"]: one["steps"] for one in told if one["tp_rank"] == 0}
    batches = []
    for step in range(len(ranks[0])):
        rows = {
            (micro * number + row) * len(ranks) + rank: digest
            for rank, steps in ranks.items()
            for number, given in enumerate(steps[step])
            for row, digest in enumerate(given)
        }
        batches.append([rows[place] for place in range(len(rows))])
    return batches


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("launch")
    made = stream(
        folder / "data",
        sources={"code": samples("code", 300), "web": samples("web", 400)},
        settings={"lanes": 8, "pack": {"pool": 4, "align": 4}},
    )
    (folder / "stream.yaml").write_text(yaml.safe_dump(made))
    return {"folder": folder, "config": made, "file": str(folder / "stream.yaml")}


def expected_batches(config: dict[str, Any], steps: int) -> list[list[str]]:
    """Return the rows that a loader on its own gives, one step a batch, as the script's digests."""
    with Loader({**config, "micro_batch_size": BATCH, "reset_position_ids": False}) as loader:
        batches = iter(loader)
        taken = [gpt_batch(next(batches), Form()) for _ in range(steps)]
    keys = ("tokens", "labels", "loss_mask", "position_ids")
    return [
        [
            hashlib.sha256(b"".join(batch[key][row].numpy().tobytes() for key in keys)).hexdigest()
            for row in range(BATCH)
        ]
        for batch in taken
    ]


def test_a_yaml_runs_a_script_on_zephons_data_resumes_at_another_size_and_stops_for_an_error(
    data: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "run.yaml"
    section = {"backend": "zephon", "config": data["file"], "valid": {"config": data["file"], "lanes": 4}}
    arguments = {"seq_length": 32, "micro_batch_size": 1, "global_batch_size": BATCH, "train_iters": 2, "eval_iters": 2}
    file.write_text(yaml.safe_dump({"data": section, "train": arguments}))
    keep = [f"save={tmp_path}", f"load={tmp_path}"]
    outs = [tmp_path / name for name in ("peers", "two", "wrong")]
    # Tensor-parallel peers of one data-parallel rank, then two of these; then rows of another length.
    runs = [(keep, ["--tensor-model-parallel-size", "2"]), (keep, []), (["train.seq_length=16"], [])]
    words: list[str] = []
    for out, (overrides, own) in zip(outs, runs, strict=True):
        out.mkdir()
        words += ["--config", str(file), *overrides, f"out={out}", str(SCRIPT), *own, NEXT]
    for ended in launched(tmp_path / "ranks", words, world=2):
        assert ended.status == 2
        assert "zephon_megatron.launch: sequence_length=32, but --seq-length is 16" in ended.err
        assert "Traceback" not in ended.err
    assert not list(outs[2].glob("rank*"))
    told = [told_of(out, 2) for out in outs[:2]]
    assert [{one["begin"] for one in run} for run in told] == [{0}, {2 * BATCH}]
    assert [batch for run in told for batch in global_batches(run, micro=1)] == expected_batches(data["config"], 4)
    # Validation gives the same rows each time, cut among the ranks.
    valid = [{row for one in run if one["valid"] for batch in one["valid"] for row in batch} for run in told]
    assert valid[0] < valid[1]
    seen = json.loads((outs[1] / "arguments.json").read_text())
    assert (seen["dataloader_type"], seen["beside"]) == ("external", "beside")


def test_the_shipped_yamls_run_on_the_cpu(data: dict[str, Any], tmp_path: Path) -> None:
    sources = data["config"]["sources"]
    # Only what needs their data and a cluster's size is changed, on the command line.
    changes = {
        "text": [
            f"data.config={data['file']}",
            f"data.valid={{config: {data['file']}}}",
            "parallel.pipeline_model_parallel_size=1",
            "parallel.tensor_model_parallel_size=1",
            "train.eval_iters=2",
        ],
        "packed": [
            f"data.sources={json.dumps(sources)}",
            f"data.index_dir={tmp_path}/index",
            "data.lanes=8",
            "data.tokenizer=null",
            "parallel.context_parallel_size=1",
        ],
        "tokens": [f"data.path={json.dumps(sources['web']['path'])}", f"data.index_dir={tmp_path}/index"],
    }
    words: list[str] = []
    for name, own in changes.items():
        path = CONFIGS / f"{name}.yaml"
        content = yaml.safe_load(path.read_text())
        train = "train." if "train" in content else ""
        (tmp_path / name).mkdir()
        small = [f"{train}{word}" for word in ("seq_length=32", "micro_batch_size=1", f"global_batch_size={BATCH}")]
        small += [f"{train}train_iters=2", f"out={tmp_path / name}"]
        small += ["checkpoint.save=null", "checkpoint.load=null"] if "checkpoint" in content else []
        words += ["--config", str(path), *own, *small, str(SCRIPT), NEXT]
    check_ended_well(launched(tmp_path, words, world=1))
    for name in changes:
        batches = global_batches(told_of(tmp_path / name, 1), micro=1)
        assert [len(batch) for batch in batches] == [BATCH, BATCH]
        assert len({digest for batch in batches for digest in batch}) == 2 * BATCH
    assert global_batches(told_of(tmp_path / "text", 1), micro=1) == expected_batches(data["config"], 2)
