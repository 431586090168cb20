"""A GPT of megatron-core trained on CPU processes: losses don't depend on the layout, or on resumes between them."""

from __future__ import annotations

import json
import math
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

EXAMPLE = Path(__file__).parents[2] / "examples" / "megatron_gpt_cpu.py"
STEPS = 50


def run(folder: Path, *options: str) -> dict[int, tuple[float, int]]:
    """Run the example and return each step's loss and number of labels."""
    command = [sys.executable, str(EXAMPLE), "--run", str(folder), "--vocabulary", "256", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    steps = [json.loads(line) for line in ended.stdout.splitlines()]
    return {step["step"]: (step["loss"], step["labels"]) for step in steps}


@pytest.mark.timeout(900)
def test_losses_equal_those_of_one_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    example = runpy.run_path(str(EXAMPLE))
    example["make_shards"](tmp_path / "data")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(example["small_config"](tmp_path / "data")))
    alone = run(tmp_path / "alone", "--until", str(STEPS), "--config", str(tmp_path / "config.yaml"))
    assert sorted(alone) == list(range(STEPS))
    # The same weights to begin with; and shards that the example makes itself, with the same bytes.
    shutil.copytree(tmp_path / "alone" / "step_0000000", tmp_path / "others" / "step_0000000")
    others = run(tmp_path / "others", "--until", "25", "--ranks", "4", "--pp", "2")
    assert sorted(others) == list(range(25))
    resumed = run(tmp_path / "others", "--until", str(STEPS), "--ranks", "2", "--tp", "2")
    assert sorted(resumed) == list(range(25, STEPS))
    for step, (loss, labels) in (others | resumed).items():
        # The very same rows: as many labels count; sums are made in another order.
        assert labels == alone[step][1]
        assert math.isclose(loss, alone[step][0], rel_tol=1e-4), f"step {step}: {loss} and {alone[step][0]}"
    # It learns: equal losses of a model that doesn't would prove little.
    assert alone[STEPS - 1][0] < alone[0][0] - 0.5
