"""Lanes in dist_checkpointing: saved at one layout, loaded at others, each written by one holder."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rank_processes import check_ended_well, run_ranks
from streams import samples, stream

from zephon import Loader, stream_digest

# One process for all of them, because they share a job's runs; and these take long on a busy machine.
pytestmark = [pytest.mark.xdist_group("megatron_checkpoints"), pytest.mark.timeout(900)]
PROGRAM = Path(__file__).parents[1] / "megatron_lanes.py"
LAYOUTS = {"DP4": {}, "TP2×DP2": {"tp": 2}, "PP2×DP2": {"pp": 2}, "CP2×DP2": {"cp": 2}, "PP4": {"pp": 4}}
SAVED_AT, UNTIL = 16, 32

Told = dict[str, tuple[dict[str, Any], ...]]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    sources = {"code": samples("code", 100), "web": samples("web", 160)}
    return stream(tmp_path_factory.mktemp("stream"), sources=sources, settings={"lanes": 8})


@pytest.fixture(scope="module")
def told(config: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Save at 4 ranks; load at 4 in other layouts, and at 2."""
    folder = tmp_path_factory.mktemp("job")
    few = {**config, "lanes": 2}
    of_four = {
        "save": {"layout": {}, "config": config, "until": SAVED_AT, "save": str(folder / "checkpoint")},
        "save from PP4": {"layout": {"pp": 4}, "config": config, "until": SAVED_AT, "save": str(folder / "from PP4")},
        "save without": {
            "layout": {},
            "config": config,
            "until": 4,
            "save": str(folder / "without"),
            "with_lanes": False,
        },
        "load without": {"layout": {"tp": 2}, "config": config, "until": UNTIL, "load": str(folder / "without")},
        "load another plan": {
            "layout": {"tp": 2},
            "config": {**config, "seed": 6},
            "until": UNTIL,
            "load": str(folder / "checkpoint"),
        },
        "load PP4's": {"layout": {"tp": 2}, "config": config, "until": UNTIL, "load": str(folder / "from PP4")},
        "save few": {"layout": {}, "config": few, "until": SAVED_AT, "save": str(folder / "few")},
        **{
            f"load at {name}": {
                "layout": layout,
                # A loader that isn't told takes as many lanes as it finds.
                "config": {**{key: value for key, value in config.items() if key != "lanes"}, "global_batch_size": 4},
                "until": UNTIL,
                "load": str(folder / "checkpoint"),
            }
            for name, layout in LAYOUTS.items()
        },
    }
    of_two = {
        "load at DP2": {"layout": {}, "config": config, "until": UNTIL, "load": str(folder / "checkpoint")},
        "load few at DP2": {"layout": {}, "config": few, "until": UNTIL, "load": str(folder / "few")},
    }
    found: Told = {}
    for world, runs in ((4, of_four), (2, of_two)):
        (folder / "runs.json").write_text(json.dumps(list(runs.values())))
        arguments = ["--runs", str(folder / "runs.json"), "--out", str(folder)]
        check_ended_well(run_ranks(PROGRAM, arguments, world=world, folder=folder / f"of {world}", seconds=200))
        ranks = [json.loads((folder / f"lanes{world}-{rank}.json").read_text()) for rank in range(world)]
        found |= dict(zip(runs, zip(*ranks, strict=True), strict=True))
    return found


def digest(config: dict[str, Any], consumed: int) -> str:
    """Return the stream's digest, from a loader iterated by hand."""
    with Loader(config) as loader:
        for _ in loader:
            if loader.consumed == consumed:
                break
        return stream_digest(loader.state_dict())


@pytest.mark.parametrize("name", [*(f"load at {name}" for name in LAYOUTS), "load at DP2", "load PP4's"])
def test_lanes_saved_at_four_ranks_go_on_at_any_layout(told: Told, config: dict[str, Any], name: str) -> None:
    assert told["save"][0]["digest"] == digest(config, SAVED_AT)
    ranks = [rank for rank in told[name] if rank["started_at"] is not None]
    assert {rank["started_at"] for rank in ranks} == {SAVED_AT}
    read = Counter(n for rank in ranks for n in rank["sequences"])
    assert sorted(read) == list(range(SAVED_AT, UNTIL))
    assert len(set(read.values())) == 1, "peers don't read the same"
    assert {rank["digest"] for rank in told[name]} == {digest(config, UNTIL)}


def test_fewer_lanes_than_ranks(told: Told, config: dict[str, Any]) -> None:
    few = {**config, "lanes": 2}
    assert {rank["digest"] for rank in told["load few at DP2"]} == {digest(few, UNTIL)}


@pytest.mark.parametrize("name", ["save", "save from PP4", "save few", *(f"load at {name}" for name in LAYOUTS)])
def test_exactly_one_holder_writes_each_lane(told: Told, name: str) -> None:
    keys = {key for rank in told[name] for key in rank["holders"]}
    lanes = 2 if name == "save few" else 8
    assert keys == {"zephon.head/shard_0_1", *(f"zephon.lane/shard_{lane}_{lanes}" for lane in range(lanes))}
    for key in keys:
        replicas = [rank["holders"][key] for rank in told[name] if key in rank["holders"]]
        assert replicas.count(0) == 1, f"{key}: {replicas}"


def test_a_checkpoint_without_lanes_is_refused_by_all(told: Told) -> None:
    for rank in told["load without"]:
        assert "StateError" in rank["error"]
        assert "has no state of Zephon's (no zephon.lane among its 0 entries)" in rank["error"]


def test_lanes_of_another_plan_are_refused(told: Told) -> None:
    for rank in told["load another plan"]:
        assert "seed is 5 in the state and 6 here" in rank["error"]
