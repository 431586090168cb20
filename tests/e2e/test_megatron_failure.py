"""An error on one rank stops the job, with its message and a non-zero status; nobody waits."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import yaml
from streams import samples, stream

PROGRAM = Path(__file__).parents[1] / "megatron_failure.py"


def test_an_error_on_one_rank_stops_the_job(tmp_path: Path) -> None:
    config = stream(tmp_path, sources={"web": samples("web", 200)}, settings={"lanes": 2})
    shard = tmp_path / "web" / "shard-001.jsonl"
    lines = shard.read_text().splitlines(keepends=True)
    lines[60] = lines[60].replace("tokens", "tokons")
    shard.write_text("".join(lines))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(PROGRAM.parent),
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    began = time.monotonic()
    ended = subprocess.run(
        [*command, str(PROGRAM), str(tmp_path / "config.yaml")],
        capture_output=True,
        text=True,
        timeout=200,
        env=environment,
        check=False,
    )
    assert ended.returncode != 0
    assert "step 3" in ended.stdout
    assert "came to an end" not in ended.stdout
    raised = set(re.findall(r"DataError: (rank at dp \d/2, tp 0/1, .*sample 60: no member 'tokens')", ended.stderr))
    # The sample is one lane's, and so one rank's: the other one waited for it.
    assert len(raised) == 1
    assert time.monotonic() - began < 150
