"""Lightning trainers on real processes: the global batches are the stream's, whatever happens to the run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from child_processes import until
from lightning_scenarios import (
    RUNS,
    SCENARIOS,
    SIZES,
    VALIDATED,
    check_leg,
    checkpoint_of,
    launch,
    legs_of,
    position_in,
    rows_by_hand,
    trained,
    write_config,
)

from zephon import Loader, Topology

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
Legs = dict[str, list[tuple[dict[str, Any], int, int]]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lightning")


@pytest.fixture(scope="module")
def config(folder: Path) -> dict[str, Any]:
    return write_config(folder)


@pytest.fixture(scope="module")
def legs(folder: Path, config: dict[str, Any]) -> Legs:
    """Every scenario's legs that were run: (leg, ranks, position that it began at)."""
    done: Legs = {name: [] for name in SCENARIOS}
    for number, ranks in enumerate(SIZES):
        batch = []
        for name in SCENARIOS:
            leg = legs_of(name, number, config, folder)
            if leg is None:
                continue
            (folder / name).mkdir(exist_ok=True)
            found = checkpoint_of(name, number, folder)
            start = 0
            if found is not None:
                start = position_in(found)[0]
                leg["resume"] = str(found)
            batch.append(leg)
            done[name].append((leg, ranks, start))
        launch(ranks, batch, folder / f"launch{number}.json")
    return done


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_global_batches_are_the_stream_s(legs: Legs, config: dict[str, Any], name: str) -> None:
    expected = rows_by_hand(legs[name][0][0]["config"], 300)
    end = 0
    for leg, ranks, start in legs[name]:
        # Runs end with a checkpoint, in whatever way they end: nothing is repeated.
        assert start == end
        end = check_leg(leg, ranks, start, expected)
        assert end > start
    assert len(legs[name]) >= 3


def test_validation_sees_the_same_rows_each_time(legs: Legs, config: dict[str, Any]) -> None:
    expected = rows_by_hand(legs["accumulate"][0][0]["val_config"], VALIDATED)
    for leg, ranks, _ in legs["accumulate"]:
        runs: dict[tuple[bool, int], list[list[str]]] = {}
        for rank in range(ranks):
            for line in Path(f"{leg['out']}-val-rank{rank}.jsonl").read_text().splitlines():
                sanity, step, rows = json.loads(line)
                runs.setdefault((sanity, step), [[] for _ in range(ranks)])[rank] += rows
        whole = [run for (sanity, _), run in runs.items() if not sanity]
        assert whole
        for run in whole:
            assert [run[n % ranks][n // ranks] for n in range(VALIDATED)] == expected


def test_states_are_whole_and_know_no_rank(legs: Legs, folder: Path, config: dict[str, Any]) -> None:
    for number in range(len(SIZES)):
        consumed, state = position_in(folder / "steps" / f"{number}-after.ckpt")
        assert sorted(map(int, state["train"]["lanes"])) == list(range(8))
        with Loader(config, Topology(dp_rank=1, dp_size=8)) as loader:
            loader.load_state_dict(state["train"])
            assert loader.consumed == consumed


def test_figures_are_logged(legs: Legs, folder: Path) -> None:
    table = next((folder / "steps" / "log-steps-2").rglob("metrics.csv")).read_text()
    for name in ("tokens_per_s", "packing_efficiency", "wait", "mixture/web", "epoch/code"):
        assert f"zephon/{name}" in table


def test_a_checkpoint_of_another_stream_is_refused(legs: Legs, folder: Path, config: dict[str, Any]) -> None:
    leg = legs_of("steps", 0, {**config, "seed": 4}, folder)
    assert leg is not None
    leg |= {"resume": str(folder / "steps" / "0-after.ckpt"), "out": str(folder / "refused")}
    spec = folder / "refused.json"
    spec.write_text(json.dumps({"devices": 1, "legs": [leg]}))
    result = subprocess.run([sys.executable, str(RUNS), str(spec)], capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert re.search(r"StateError: the state is of another plan: .*seed is 3 in the state and 4 here", result.stderr)


def test_ranks_that_were_killed_go_on_from_the_last_checkpoint(folder: Path, config: dict[str, Any]) -> None:
    (folder / "two_to_one_killed").mkdir()
    leg = {
        "name": "killed",
        "number": 0,
        "folder": str(folder / "two_to_one_killed"),
        "out": str(folder / "two_to_one_killed" / "leg0"),
        "save": "0-{step}",
        "config": config,
        "checkpoint": {"every_n_train_steps": 3, "save_top_k": -1},
        "trainer": {"max_steps": 50, "limit_val_batches": 0},
        "pause_at": 8,
    }
    spec = folder / "killed.json"
    spec.write_text(json.dumps({"devices": 2, "legs": [leg]}))
    process = subprocess.Popen(
        [sys.executable, str(RUNS), str(spec)],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        flags = [folder / "two_to_one_killed" / f"paused-{rank}" for rank in range(2)]
        assert until(lambda: all(flag.exists() for flag in flags), seconds=120)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    expected = rows_by_hand(config, 100)
    assert check_leg(leg, 2, 0, expected) == 8 * 4
    found = checkpoint_of("two_to_one_killed", 1, folder)
    assert found is not None
    start, _ = position_in(found)
    assert start == 6 * 4
    again = {**leg, "number": 1, "out": leg["out"].replace("leg0", "leg1"), "resume": str(found), "save": "1-{step}"}
    del again["pause_at"]
    again["trainer"] = {"max_steps": 12, "limit_val_batches": 0}
    launch(1, [again], folder / "again.json")
    assert check_leg(again, 1, start, expected) == start + 6 * 2


def test_model_parallel_peers_get_the_same_and_data_parallel_ones_the_rest(
    folder: Path, config: dict[str, Any]
) -> None:
    (folder / "mesh").mkdir()
    first = legs_of("steps", 0, config, folder)
    assert first is not None
    first |= {"folder": str(folder / "mesh"), "out": str(folder / "mesh" / "leg0"), "mesh": [2, 2], "logs": False}
    second = {
        **first,
        "mesh": [4, 1],
        "out": str(folder / "mesh" / "leg1"),
        "resume": str(folder / "mesh" / "0-after.ckpt"),
    }
    second |= {"trainer": {"max_steps": 10, "limit_val_batches": 0}, "save_after": "1-after.ckpt"}
    launch(4, [first, second], folder / "mesh.json")
    expected = rows_by_hand(config, 100)
    ranks = [Path(f"{first['out']}-rank{rank}.jsonl").read_text() for rank in range(4)]
    # The mesh's data dimension is the outer one: ranks 0 and 1 are tensor-parallel peers.
    assert ranks[0] == ranks[1] != ranks[2] == ranks[3]
    for rank, name in enumerate((0, 2)):
        Path(f"{first['out']}-dp-rank{rank}.jsonl").write_text(ranks[name])
    assert check_leg({**first, "out": f"{first['out']}-dp"}, 2, 0, expected) == 5 * 4
    assert check_leg(second, 4, 5 * 4, expected) == 5 * 4 + 5 * 8
    assert len(trained(second["out"], 4)) == 5


def test_finite_epochs_end_together_on_three_ranks(folder: Path, config: dict[str, Any]) -> None:
    legs = []
    # Rows for two, one and none of the ranks are left over; with 6 lanes and with 12, and for validation 13.
    for lanes, length in ((6, 26), (12, 25), (3, 24)):
        name = f"thirds{lanes}"
        (folder / name).mkdir()
        leg = legs_of("epochs", 0, {**config, "lanes": lanes}, folder)
        assert leg is not None
        leg |= {"name": name, "folder": str(folder / name), "out": str(folder / name / "leg0")}
        leg["config"] = {**config, "lanes": lanes, "length": length}
        leg["val_config"] = {**config, "lanes": lanes, "length": VALIDATED, "seed": 9}
        leg["trainer"] = {"max_epochs": 3, "accumulate_grad_batches": 2}
        legs.append(leg)
    # Ranks that wait for each other are ended by the launch's timeout.
    launch(3, legs, folder / "thirds.json")
    for leg in legs:
        length = leg["config"]["length"]
        assert check_leg(leg, 3, 0, rows_by_hand(leg["config"], 3 * length)) == 3 * length
        batches = [len(Path(f"{leg['out']}-val-rank{rank}.jsonl").read_text().splitlines()) for rank in range(3)]
        assert batches[0] >= 3 * 3
        assert len(set(batches)) == 1
