"""What Trainers are put through in tests/e2e/test_lightning.py, as legs of chains over launches of several sizes."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from msgspec.structs import replace
from row_hashes import row_hashes

from zephon import Loader, load_config

RUNS = Path(__file__).parent / "lightning_runs.py"
# The sizes of the launches, in order: 1→2, 2→4, 4→1, and 2→1 for who passes one over.
SIZES = (1, 2, 4, 1, 2)
VALIDATED = 13


def write_config(folder: Path) -> dict[str, Any]:
    """Write two small sources and return a configuration over them."""
    draw = random.Random(1)
    sources = {}
    for name, weight in (("web", 0.7), ("code", 0.3)):
        with (folder / f"{name}.jsonl").open("w") as file:
            for _ in range(300):
                file.write(json.dumps({"tokens": [draw.randrange(1000) for _ in range(draw.randrange(1, 60))]}) + "\n")
        stage = {"kind": "tokens", "field": "tokens"}
        sources[name] = {"path": str(folder / f"{name}.jsonl"), "weight": weight, "stage": stage, "block_samples": 4}
    return {
        "seed": 3,
        "lanes": 8,
        "micro_batch_size": 2,
        "sequence_length": 32,
        "index_dir": str(folder / "index"),
        "device": "cpu",
        "backend": {"kind": "threads", "workers": 1, "prefetch": 2},
        "sources": sources,
    }


def legs_of(name: str, number: int, config: dict[str, Any], folder: Path) -> dict[str, Any] | None:
    """Return a scenario's leg for launch `number` (from 0), or None where it passes that over."""
    leg: dict[str, Any] = {
        "name": name,
        "number": number,
        "folder": str(folder / name),
        "out": str(folder / name / f"leg{number}"),
        "save": f"{number}-{{step}}",
        "config": config,
        "checkpoint": {"every_n_train_steps": 1, "save_top_k": -1},
    }
    trainer: dict[str, Any] = {"max_steps": 5 * (number + 1), "limit_val_batches": 0}
    match name:
        case "steps":
            leg["checkpoint"]["every_n_train_steps"] = 5
            leg |= {"logs": True, "save_after": f"{number}-after.ckpt"}
            trainer["log_every_n_steps"] = 2
        case "two_to_one":
            if number not in (1, 3, 4):
                return None
        case "accumulate":
            # Checkpoints at the end of validations, which come amid training.
            trainer = {
                "max_steps": 4 * (number + 1),
                "accumulate_grad_batches": 3,
                "val_check_interval": 6,
                "check_val_every_n_epoch": None,
                "num_sanity_val_steps": 2,
            }
            leg |= {"val_config": {**config, "length": VALIDATED, "seed": 9}, "checkpoint": {"save_top_k": -1}}
        case "epochs":
            leg["config"] = {**config, "length": 24}
            trainer = {"max_epochs": number + 1, "limit_val_batches": 0}
            leg["checkpoint"] = {"save_top_k": -1}
        case "within_epochs":
            leg["config"] = {**config, "length": 48}
            # 10, 26, 42, 52 (in the second pass), 64 sequences.
            trainer = {"max_steps": (5, 9, 11, 16, 19)[number], "max_epochs": -1, "limit_val_batches": 0}
        case "stepping":
            leg["reads_steps"] = True
        case "stepping_finite":
            leg |= {"reads_steps": True, "config": {**config, "length": 400}}
        case "limited":
            trainer = {"max_epochs": 2 * (number + 1), "limit_train_batches": 3, "limit_val_batches": 0}
            leg["checkpoint"] = {"save_top_k": -1}
        case "sizes":
            leg["config"] = {**config, "micro_batch_size": (2, 1, 3, 4, 2)[number]}
        case "exception":
            leg |= {"fail_at": 3, "save_on_exception": f"{number}-failed"}
            leg["checkpoint"]["every_n_train_steps"] = 2
        case _:
            raise ValueError(name)
    return {**leg, "trainer": trainer}


SCENARIOS = (
    "steps",
    "two_to_one",
    "accumulate",
    "epochs",
    "within_epochs",
    "stepping",
    "stepping_finite",
    "limited",
    "sizes",
    "exception",
)


def checkpoint_of(name: str, number: int, folder: Path) -> Path | None:
    """Return the newest checkpoint of the legs before `number`."""
    for earlier in range(number - 1, -1, -1):
        failed = folder / name / f"{earlier}-failed.ckpt"
        if failed.exists():
            return failed
        found = list((folder / name).glob(f"{earlier}-step=*.ckpt"))
        if found:
            return max(found, key=lambda path: int(path.stem.rpartition("=")[2].partition("-")[0]))
    return None


def position_in(checkpoint: Path) -> tuple[int, dict[str, Any]]:
    """Return the sequences consumed at a checkpoint, and the data module's state in it."""
    state = torch.load(checkpoint, weights_only=True)["ZephonDataModule"]
    return state["train"]["consumed"] + state["ahead"], state


def launch(devices: int, legs: Sequence[dict[str, Any]], spec: Path, *, timeout_s: float = 240) -> str:
    """Run legs on so many ranks and return what they printed."""
    spec.write_text(json.dumps({"devices": devices, "legs": list(legs)}))
    result = subprocess.run(
        [sys.executable, str(RUNS), str(spec)], capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-6000:]
    return result.stdout + result.stderr


def rows_by_hand(config: dict[str, Any], count: int) -> list[str]:
    """Return the hashes of the stream's first rows, read by one rank without a trainer, pass after pass."""
    rows: list[str] = []
    with Loader(replace(load_config(config), micro_batch_size=1)) as loader:
        while len(rows) < count:
            for batch in loader:
                rows += row_hashes(batch)
                if len(rows) >= count:
                    break
    return rows


def trained(out: str, ranks: int) -> list[tuple[int, list[tuple[int, str]]]]:
    """Return each micro-step: the optimizer steps before it, and its rows over all ranks as (sequence, hash).

    Checks which rank had which sequence, and that the ranks agree on the steps.
    """
    files = [Path(f"{out}-rank{rank}.jsonl") for rank in range(ranks)]
    lines = [[json.loads(line) for line in file.read_text().splitlines()] for file in files]
    assert len({len(rank) for rank in lines}) == 1
    steps = []
    for step in zip(*lines, strict=True):
        rows = []
        assert len({before for before, _, _ in step}) == 1
        for rank, (_, sequences, hashes) in enumerate(step):
            assert all(n % ranks == rank for n in sequences)
            rows += list(zip(sequences, hashes, strict=True))
        steps.append((step[0][0], sorted(rows)))
    return steps


def check_leg(leg: dict[str, Any], ranks: int, start: int, expected: Sequence[str]) -> int:
    """Hold a leg's micro-steps, and its global batches, to the stream from `start` on; return the position after."""
    length = leg["config"].get("length")
    position = start
    windows: dict[int, list[int]] = {}
    for step, rows in trained(leg["out"], ranks):
        base = position if length is None else position % length
        assert [n for n, _ in rows] == list(range(base, base + len(rows)))
        for n, found in rows:
            if length is None or n < length:
                assert found == expected[position + n - base], f"{leg['name']}: sequence {n} from position {position}"
        windows.setdefault(step, []).append(len(rows))
        position += len(rows) if length is None else min(len(rows), length - base)
    check_windows(leg, ranks, start, windows)
    return position


def check_windows(leg: dict[str, Any], ranks: int, start: int, windows: dict[int, list[int]]) -> None:
    """Hold the sequences that the optimizer steps took to whole global batches, but for a pass's last one."""
    assert list(windows) == list(range(min(windows), max(windows) + 1))
    accumulate = leg["trainer"].get("accumulate_grad_batches", 1)
    micro, length = ranks * leg["config"]["micro_batch_size"], leg["config"].get("length")
    position = start
    for step, sizes in windows.items():
        whole = micro * accumulate
        left = whole if length is None else length - position % length
        assert sum(sizes) == min(whole, -(-left // micro) * micro), f"{leg['name']}: optimizer step {step}"
        position += min(sum(sizes), left)
