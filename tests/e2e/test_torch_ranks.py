"""Plain PyTorch on real processes: lanes saved by torch.distributed.checkpoint load on any number of ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lightning_scenarios import rows_by_hand, write_config
from msgspec.structs import replace

from zephon import Loader, load_config, stream_digest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
SCRIPT = Path(__file__).parents[1] / "torch_ranks.py"
STEPS = 3


def launch(spec: dict[str, Any], folder: Path) -> list[list[list[Any]]]:
    """Run a launch's ranks; return what each wrote."""
    path = folder / "spec.json"
    path.write_text(json.dumps(spec))
    size = spec["shape"][0] * spec["shape"][1]
    ranks = [
        subprocess.Popen([sys.executable, str(SCRIPT), str(path), str(rank)], stderr=subprocess.PIPE, text=True)
        for rank in range(size)
    ]
    try:
        for rank in ranks:
            _, errors = rank.communicate(timeout=120)
            assert rank.returncode == 0, errors
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    files = [Path(f"{spec['out']}-rank{rank}.jsonl") for rank in range(size)]
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


def test_lanes_saved_on_two_ranks_go_on_on_three_one_and_four(tmp_path: Path) -> None:
    config = {**write_config(tmp_path), "lanes": 12}
    expected = rows_by_hand(config, 100)
    consumed = 0
    saved = None
    for number, shape in enumerate([(2, 1), (3, 1), (1, 1), (2, 2), (4, 1)]):
        spec = {
            "config": config,
            "shape": shape,
            "steps": STEPS,
            "out": str(tmp_path / f"launch{number}"),
            "load": saved,
            "save": str(tmp_path / f"checkpoint{number}"),
            "asynchronous": number == 1,
        }
        lines = launch(spec, tmp_path)
        saved = spec["save"]
        dp, tp = shape
        assert [rank[0] for rank in lines] == [["start", consumed]] * (dp * tp)
        for step in range(STEPS):
            rows: list[tuple[int, str]] = []
            for rank in range(dp):
                peers = [lines[rank * tp + peer][1 + step] for peer in range(tp)]
                assert all(peer == peers[0] for peer in peers)
                rows += list(zip(*peers[0], strict=True))
            window = range(consumed, consumed + 2 * dp)
            assert sorted(rows) == [(n, expected[n]) for n in window]
            consumed = window.stop
        with Loader(replace(load_config(config), micro_batch_size=1)) as loader:
            for _ in zip(range(consumed), loader, strict=False):
                pass
            digest = stream_digest(loader.state_dict())
        assert {line[1] for rank in lines for line in rank if line[0] == "digest"} == {digest}
        message = "part is gone" if dp * tp == 1 else f"part is gone (on rank {dp * tp - 1} of {dp * tp})"
        errors = {line[1] for rank in lines for line in rank if line[0] == "error"}
        assert errors == {"part is gone", message}
