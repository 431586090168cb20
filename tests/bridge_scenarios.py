"""Runs of Megatron-Bridge's loop, and what must hold of them, whoever's parts the loop has."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from rank_processes import check_ended_well, run_ranks
from streams import samples, stream
from zephon_megatron import Form, gpt_batch

from zephon import Loader

PROGRAM = Path(__file__).with_name("bridge_rank.py")
BATCH = 8
STEPS = 2
Told = list[list[dict[str, Any]]]


def digest(row: Any) -> str:
    return hashlib.sha256(row.numpy().tobytes()).hexdigest()


def runs_of(folder: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the runs of a chain of layouts, with faults in between, and the stream's configuration."""
    config = stream(
        folder / "data",
        sources={"code": samples("code", 300), "web": samples("web", 400)},
        settings={"lanes": 4, "global_batch_size": BATCH, "pack": {"pool": 4, "align": 4}},
    )
    (folder / "stream.yaml").write_text(json.dumps(config))
    words = ["data.backend=zephon", f"data.config={folder}/stream.yaml"]
    other = [*words, "data.seed=6"]
    here = str(folder)
    chain: list[dict[str, Any]] = [
        {"words": words, "save": True},
        {"words": words, "tp": 2, "save": True, "load": here},
        {"words": [*words, "data.packed=true"], "pp": 4, "save": True, "load": here},
        {
            "words": [*words, f"data.valid.config={folder}/stream.yaml"],
            "tp": 2,
            "pp": 2,
            "load": here,
            "micro": 2,
            "eval_iters": 1,
        },
        # Each of these must fail, on every rank.
        {"words": other, "load": here},
        {"words": [*words, "data.packed=true"], "micro": 2},
        {"words": words, "eval_iters": 1},
        {"words": [*words, f"data.load={here}/nowhere"], "load": here},
        {"words": [*words, "data.begins_at=8"]},
    ]
    return [{"folder": here, "steps": STEPS, **run} for run in chain], config


def run_chain(folder: Path) -> tuple[Told, dict[str, Any]]:
    """Run the chain on four ranks; return what each told of each run, and the stream's configuration."""
    runs, config = runs_of(folder)
    (folder / "runs.json").write_text(json.dumps(runs))
    words = ["--runs", str(folder / "runs.json"), "--out", str(folder)]
    check_ended_well(run_ranks(PROGRAM, words, world=4, folder=folder / "ranks", seconds=200))
    ranks = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(4)]
    return [[rank[number] for rank in ranks] for number in range(len(runs))], config


def rows_by_sequence(told: list[dict[str, Any]], key: str, *, micro: int) -> list[list[str]]:
    """Return each step's rows of a key in the stream's order; all ranks of a data-parallel rank must agree."""
    steps: list[list[str]] = []
    size = 1 + max(one["place"]["dp"] for one in told)
    for step in range(STEPS):
        rows: dict[int, str] = {}
        for one in told:
            for number, given in enumerate(one["steps"][step]):
                for row, value in enumerate(given.get(key, [])):
                    place = (number * micro + row) * size + one["place"]["dp"]
                    assert rows.setdefault(place, value) == value
        steps.append([rows[place] for place in range(len(rows))])
    return steps


def check_chain(told: Told, config: dict[str, Any], folder: Path) -> None:
    """Raise AssertionError where the chain isn't one sequence of global batches, or a fault went unseen."""
    with Loader({**config, "micro_batch_size": BATCH, "reset_position_ids": False}) as loader:
        batches = iter(loader)
        expected = [gpt_batch(next(batches), Form()) for _ in range(4 * STEPS)]
    with Loader({**config, "micro_batch_size": BATCH}) as loader:
        batches = iter(loader)
        packed = [gpt_batch(next(batches), Form(packed=True)) for _ in range(4 * STEPS)]
    good = told[:4]
    assert [one.get("message") for run in good for one in run] == [None] * 16
    for key in ("tokens", "labels", "loss_mask"):
        found = [
            rows
            for run, micro in zip(good, (1, 1, 1, 2), strict=True)
            for rows in rows_by_sequence(run, key, micro=micro)
        ]
        assert found == [[digest(row) for row in batch[key]] for batch in expected], key
    check_places(good)
    check_packed(good[2], packed[2 * STEPS : 3 * STEPS])
    # One file a data-parallel rank, each of them whole: the first suffices for any number of ranks.
    saved = sorted(path.name for path in (folder / "zephon" / f"iter_{STEPS:07d}").iterdir())
    assert saved == [f"train_dataloader_dprank00{rank}.pt" for rank in range(4)]
    assert len(list((folder / "zephon" / f"iter_{3 * STEPS:07d}").iterdir())) == 1
    says = [
        ("StateError", "seed"),
        ("ConfigError", "packed batches have one row"),
        ("ConfigError", "there is no validation stream"),
        ("StateError", "has no state of the stream"),
        ("ConfigError", "dataset.begins_at=8"),
    ]
    for run, (kind, text) in zip(told[4:], says, strict=True):
        for one in run:
            assert one["error"] == kind
            assert text in one["message"]
            assert "\n" not in one["message"]


def check_places(good: Told) -> None:
    """First stages get tokens, last ones labels; those between nothing, unless packed; tensor-parallel ranks all."""
    for one in good[0] + good[1]:
        assert {"tokens", "labels"} <= set(one["steps"][0][0])
    for one in good[2]:
        assert "packed" in one["steps"][0][0]
        assert ("tokens" in one["steps"][0][0]) == (one["place"]["pp"] != 3)
    for one in good[3]:
        assert ("tokens" in one["steps"][0][0]) == (one["place"]["pp"] == 0)
        assert ("labels" in one["steps"][0][0]) == (one["place"]["pp"] == 1)
        assert "packed" not in one["steps"][0][0]
    # Peers evaluate on equal rows.
    assert len({json.dumps(one["valid"]) for one in good[3] if one["place"]["pp"] == 0}) == 1


def check_packed(told: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Packed metadata are the bounds of the row's documents, on every stage, and position ids start anew at each."""
    for one in told:
        for given, batch in zip(one["steps"], expected, strict=True):
            for row, micro_batch in enumerate(given):
                bounds = sorted(set(batch["cu_seqlens"][row].tolist()))
                packed = micro_batch["packed"]
                assert packed["cu_seqlens_q"] == packed["cu_seqlens_kv"] == bounds
                assert packed["max_seqlen_q"] == packed["max_seqlen_kv"] == int(batch["max_seqlen"][row])
                assert micro_batch.get("position_ids", [digest(batch["position_ids"][row])]) == [
                    digest(batch["position_ids"][row])
                ]
    assert max(len(set(row.tolist())) for batch in expected for row in batch["cu_seqlens"]) > 2
