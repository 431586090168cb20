"""Runs of an AutoModel job at several data-parallel sizes, and what must hold of them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
import yaml
from rank_processes import check_ended_well, run_ranks
from streams import samples, stream

from zephon import Loader

PROGRAM = Path(__file__).with_name("automodel_rank.py")
SHIPPED = Path(__file__).parents[1] / "configs" / "nemo" / "automodel.yaml"
GLOBAL, LOCAL, STEPS = 8, 2, 2
Told = list[list[dict[str, Any]]]


def run_chain(folder: Path) -> tuple[Told, dict[str, Any]]:
    """Run a chain on four ranks, with tensor-parallel peers; return what each rank told, and the configuration."""
    config = stream(
        folder / "data",
        sources={"code": samples("code", 300), "web": samples("web", 400)},
        settings={"lanes": 4, "global_batch_size": GLOBAL},
    )
    (folder / "stream.yaml").write_text(json.dumps(config))
    shipped = yaml.safe_load(SHIPPED.read_text())
    dataset = {**shipped["dataset"], "config": f"{folder}/stream.yaml", "overrides": ["spread=2"]}
    scheduler = {"global_batch_size": GLOBAL, "local_batch_size": LOCAL, "max_steps": STEPS}
    recipe = {**shipped, "dataset": dataset, "step_scheduler": scheduler}
    finite = {**recipe, "dataset": {**dataset, "overrides": ["length=10", "spread=2"]}}
    finite["step_scheduler"] = {**scheduler, "max_steps": 9}
    other = {**recipe, "dataset": {**dataset, "overrides": ["spread=3"]}}
    at = [str(folder / f"epoch_0_step_{STEPS * number}") for number in range(5)]
    runs: list[dict[str, Any]] = [
        {"tp": 1, "yaml": recipe, "save": at[1]},
        {"tp": 2, "yaml": recipe, "load": at[1], "save": at[2]},
        {"tp": 1, "yaml": recipe, "load": at[2], "save": at[3], "spread": True},
        {"tp": 4, "yaml": recipe, "load": at[3]},
        {"tp": 1, "yaml": finite},
        {"tp": 1, "yaml": other, "load": at[1]},
    ]
    (folder / "runs.json").write_text(json.dumps(runs))
    words = ["--runs", str(folder / "runs.json"), "--out", str(folder)]
    ended = run_ranks(PROGRAM, words, world=4, folder=folder / "ranks", seconds=200, preload=("torch", "zephon_nemo"))
    check_ended_well(ended)
    ranks = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(4)]
    return [[rank[number] for rank in ranks] for number in range(len(runs))], config


def check_chain(told: Told, config: dict[str, Any]) -> None:
    """Raise AssertionError where the chain isn't one sequence of global batches, or a fault went unseen."""
    with Loader({**config, "spread": 2, "micro_batch_size": GLOBAL}) as loader:
        batches = iter(loader)
        expected = [next(batches) for _ in range(4 * STEPS)]
    assert [one.get("message") for run in told[:5] for one in run] == [None] * 20
    for key, values in (
        ("input_ids", [batch["tokens"] for batch in expected]),
        ("labels", [batch["labels"].masked_fill(batch["loss_mask"] == 0, -100) for batch in expected]),
        ("position_ids", [batch["position_ids"] for batch in expected]),
        ("attention_mask", [torch.ones_like(batch["tokens"]).long() for batch in expected]),
    ):
        found = [rows for run in told[:4] for rows in rows_by_sequence(run, key)]
        assert found == [[digest(row) for row in rows.long()] for rows in values], key
    # Of ten sequences on four ranks each gets three, the last two masked.
    ended = [label for one in told[4] for step in one["steps"] for batch in step for label in batch["labels"]]
    assert len(ended) == 12
    assert ended.count(digest(torch.full((32,), -100))) == 2
    for one in told[5]:
        assert one["error"] == "StateError"
        assert "spread" in one["message"]


def rows_by_sequence(told: list[dict[str, Any]], key: str) -> list[list[str]]:
    """Return each step's rows of a key in the stream's order; peers of a data-parallel rank must agree."""
    steps = []
    size = told[0]["dp_size"]
    for step in range(STEPS):
        rows: dict[int, str] = {}
        for one in told:
            for number, batch in enumerate(one["steps"][step]):
                for row, value in enumerate(batch[key]):
                    assert rows.setdefault((number * LOCAL + row) * size + one["dp_rank"], value) == value
        steps.append([rows[place] for place in range(GLOBAL)])
    return steps


def digest(row: torch.Tensor) -> str:
    return hashlib.sha256(row.numpy().tobytes()).hexdigest()
