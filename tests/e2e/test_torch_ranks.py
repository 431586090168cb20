"""Plain PyTorch on real processes: lanes saved by torch.distributed.checkpoint load on any number of ranks."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import pytest
import yaml
from rank_processes import check_ended_well, run_ranks
from streams import samples, stream
from torch_ranks import row_hashes

from zephon import Loader, stream_digest

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "torch_ranks.py"
STEPS = 3
# dp_replicate, dp_shard, tp: 2, 3, 1, dp2×tp2, hybrid 2×2, and 1 data-parallel rank again.
SHAPES = [(1, 2, 1), (1, 3, 1), (1, 1, 1), (1, 2, 2), (2, 2, 1), (1, 1, 2)]
MICRO = 2


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    sources = {"code": samples("code", 200, masked=True), "web": samples("web", 300, masked=True)}
    settings = {"lanes": 12, "micro_batch_size": MICRO}
    return stream(tmp_path / "data", sources=sources, masked=True, settings=settings)


def launch(legs: list[dict[str, Any]], folder: Path) -> list[list[list[Any]]]:
    """Run legs, one after another, on as many ranks as the largest has; return what each rank of each leg wrote."""
    spec = folder / "spec.json"
    spec.write_text(json.dumps(legs))
    world = max(prod(leg["shape"]) for leg in legs)
    ended = run_ranks(PROGRAM, ["--spec", str(spec)], world=world, folder=folder / "processes", seconds=200)
    check_ended_well(ended)
    return [
        [
            [json.loads(line) for line in Path(f"{leg['out']}-rank{rank}.jsonl").read_text().splitlines()]
            for rank in range(prod(leg["shape"]))
        ]
        for leg in legs
    ]


def told(rank: list[Any], what: str) -> list[Any]:
    return [line[1:] for line in rank if line[0] == what]


def test_lanes_saved_on_two_ranks_go_on_on_three_one_and_four(config: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "stream.yaml").write_text(yaml.safe_dump(config))
    legs = [
        {
            "config": str(tmp_path / "stream.yaml") if titan else config,
            "shape": shape,
            "steps": STEPS,
            "out": str(tmp_path / f"leg{titan}{number}"),
            "load": str(tmp_path / f"saved{titan}{number - 1}") if number else None,
            "save": str(tmp_path / f"saved{titan}{number}"),
            "asynchronous": number in (1, 3),
            "torchtitan": titan,
            "examples": str(ROOT / "examples"),
        }
        for titan, shapes in ((False, SHAPES), (True, [(2,), (1,), (4,)]))
        for number, shape in enumerate(shapes)
    ]
    expected, masked, digests = by_hand(config, 100)
    consumed = 0
    for leg, ranks in zip(legs, launch(legs, tmp_path), strict=True):
        dp = prod(leg["shape"][:2])
        size = len(ranks)
        if leg["load"] is None:
            consumed = 0
        assert [told(rank, "start") for rank in ranks] == [[[consumed]]] * size
        for step in range(STEPS):
            rows: list[tuple[int, str]] = []
            for rank in range(dp):
                peers = [told(ranks[rank * (size // dp) + peer], "rows")[step] for peer in range(size // dp)]
                assert all(peer == peers[0] for peer in peers)
                assert all(n % dp == rank for n in peers[0][0])
                rows += list(zip(*peers[0], strict=True))
            window = range(consumed, consumed + MICRO * dp)
            assert sorted(rows) == [(n, expected[n]) for n in window]
            if leg["torchtitan"]:
                assert sum(told(rank, "masked")[step][0] for rank in ranks) == sum(masked[n] for n in window)
            consumed = window.stop
        if not leg["torchtitan"]:
            assert [told(rank, "digest") for rank in ranks] == [[[digests[consumed]]]] * size
            where = f" (on rank {size - 1} of {size})" if size > 1 else ""
            for number, rank in enumerate(ranks):
                kinds, (first, second, third) = zip(*told(rank, "error"), strict=True)
                assert set(kinds) == {"StateError"}
                assert first == "part is gone" + (where if number < size - 1 else "")
                assert second.startswith("no state at consumed=-1")
                assert second.endswith(where) or number == size - 1
                assert "no whole state of a Zephon loader under 'elsewhere' (its keys: data)" in third


def by_hand(config: dict[str, Any], count: int) -> tuple[list[str], list[int], dict[int, str]]:
    """Return each row's hash and number of masked labels, and the digest at each position, read without ranks."""
    hashes, masked, digests = [], [], {}
    with Loader({**config, "micro_batch_size": 1}) as loader:
        for _, batch in zip(range(count), loader, strict=False):
            hashes += row_hashes(batch["tokens"])
            masked.append(int((batch["loss_mask"] == 0).sum()))
            digests[loader.consumed] = stream_digest(loader.state_dict())
    return hashes, masked, digests
