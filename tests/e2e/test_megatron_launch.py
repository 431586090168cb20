"""The launcher on whole jobs: a script of Megatron-LM's shape, real processes, megatron-core's own groups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from rank_processes import Ended, check_ended_well, run_ranks
from streams import samples, stream

from zephon import Loader

TESTS = Path(__file__).parents[1]
PROGRAM = TESTS / "launched_rank.py"
SCRIPT = TESTS / "megatron_lm" / "pretrain_gpt.py"
CONFIGS = TESTS.parent / "configs" / "megatron"
BATCH = 8


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


def test_a_yaml_runs_a_script_on_zephons_data_and_resumes_at_another_size(data: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    section = {"backend": "zephon", "config": data["file"], "valid": {"config": data["file"], "lanes": 4}}
    arguments = {"seq_length": 32, "micro_batch_size": 1, "global_batch_size": BATCH, "train_iters": 2, "eval_iters": 2}
    keep = {"save": str(tmp_path), "load": str(tmp_path), "out": str(tmp_path)}
    file.write_text(yaml.safe_dump({"data": section, "train": arguments, "checkpoint": keep}))
    steps: list[list[str]] = []
    valid = []
    # On one rank, then on four, two of which are tensor-parallel peers.
    for number, (world, words) in enumerate([(1, []), (4, ["--tensor-model-parallel-size", "2"])]):
        ended = launched(tmp_path / f"run{number}", ["--config", str(file), str(SCRIPT), *words], world=world)
        check_ended_well(ended)
        told = told_of(tmp_path, world)
        assert {one["begin"] for one in told} == {number * 2 * BATCH}
        steps += global_batches(told, micro=1)
        valid.append([batch for one in told if one["valid"] for batch in one["valid"]])
    assert [len(batch) for batch in steps] == [BATCH] * 4
    assert len({digest for batch in steps for digest in batch}) == 4 * BATCH
    # The same rows as a loader on its own gives, in one go.
    with Loader({**data["config"], "micro_batch_size": BATCH}) as loader:
        batches = iter(loader)
        expected = [next(batches)["tokens"].shape[0] for _ in range(4)]
    assert expected == [BATCH] * 4
    once = tmp_path / "once"
    once.mkdir()
    words = ["--config", str(file), f"checkpoint.out={once}", "save=null", "load=null", "train.train_iters=4"]
    words = [word.replace("save=", "checkpoint.save=").replace("load=", "checkpoint.load=") for word in words]
    check_ended_well(launched(once, [*words, str(SCRIPT)], world=1))
    assert global_batches(told_of(once, 1), micro=1) == steps
    # Validation gives the same rows each time, cut among the ranks.
    assert len(valid[0]) == len(valid[1]) // 2
    arguments_seen = json.loads((tmp_path / "arguments.json").read_text())
    assert arguments_seen["dataloader_type"] == "external"
    assert arguments_seen["beside"] == "beside"


@pytest.mark.parametrize("name", ["text", "packed", "tokens"])
def test_a_shipped_yaml_runs_on_the_cpu(data: dict[str, Any], tmp_path: Path, name: str) -> None:
    content = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())
    # Only what needs their data and a cluster's size is changed, on the command line.
    train = "train." if "train" in content else ""
    small = [f"{train}{key}" for key in ("seq_length=32", "micro_batch_size=1", "global_batch_size=8", "train_iters=2")]
    small += [f"out={tmp_path}"]
    small += ["checkpoint.save=null", "checkpoint.load=null"] if "checkpoint" in content else []
    small += ["parallel.context_parallel_size=1"] if name == "packed" else []
    if name == "text":
        small += [f"data.config={data['file']}", f"data.valid={{config: {data['file']}}}"]
        small += ["parallel.pipeline_model_parallel_size=1", f"{train}eval_iters=2"]
    else:
        sources = json.dumps(data["config"]["sources"] if name == "packed" else None)
        small += [f"data.index_dir={tmp_path}/index"]
        small += [f"data.sources={sources}", "data.lanes=8", "data.tokenizer=null"] if name == "packed" else []
        paths = data["config"]["sources"]["web"]["path"]
        small += [f"data.path={json.dumps(paths)}"] if name == "tokens" else []
    world = 2
    ended = launched(tmp_path, ["--config", str(CONFIGS / f"{name}.yaml"), *small, str(SCRIPT)], world=world)
    check_ended_well(ended)
    batches = global_batches(told_of(tmp_path, world), micro=1)
    assert [len(batch) for batch in batches] == [8, 8]
    assert len({digest for batch in batches for digest in batch}) == 16


def test_another_backend_falls_through_to_the_scripts_own_provider(tmp_path: Path) -> None:
    small = [f"out={tmp_path}", "train.micro_batch_size=1", "train.global_batch_size=1", "train.eval_iters=0"]
    (ended,) = launched(tmp_path, ["--config", str(CONFIGS / "stock.yaml"), *small, str(SCRIPT)], world=1)
    assert ended.status == 1
    assert "AssertionError: the stock provider was called" in ended.err
    seen = json.loads((tmp_path / "arguments.json").read_text())
    assert seen["data_path"] == ["0.7", "data/web_text_document", "0.3", "data/code_text_document"]
    assert (seen["split"], seen["dataloader_type"]) == ("99,1,0", None)


def test_an_error_of_the_stream_ends_every_rank_with_its_message(data: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    arguments = {"seq_length": 16, "micro_batch_size": 1, "global_batch_size": 4, "train_iters": 1, "eval_iters": 0}
    section = {"backend": "zephon", "config": data["file"]}
    file.write_text(yaml.safe_dump({"data": section, **arguments, "out": str(tmp_path)}))
    for ended in launched(tmp_path, ["--config", str(file), str(SCRIPT)], world=2):
        assert ended.status not in (0, -9)
        assert "sequence_length=32, but --seq-length is 16" in ended.err


def test_a_script_that_never_trains_is_an_error(data: dict[str, Any], tmp_path: Path) -> None:
    script = tmp_path / "other.py"
    # megatron.training must be importable, as it is in Megatron-LM's folder.
    (tmp_path / "megatron").symlink_to(SCRIPT.parent / "megatron")
    script.write_text("print('nothing')\n")
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump({"data": {"backend": "zephon", "config": data["file"]}}))
    (ended,) = launched(tmp_path, ["--config", str(file), str(script)], world=1)
    assert ended.status == 1
    assert "ended without calling megatron.training.pretrain" in ended.err
