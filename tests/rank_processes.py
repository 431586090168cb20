"""Real processes of one job, one a rank: started together, never left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Ended(NamedTuple):
    """How a rank ended, and what it printed."""

    status: int
    out: str
    err: str


def run_ranks(
    program: Path, arguments: Sequence[str], *, world: int, folder: Path, seconds: float, grace_s: float = 20.0
) -> list[Ended]:
    """Run `program --rank R --world N --rendezvous FILE arguments…` for each rank and return how they ended.

    Ranks still there `grace_s` after one failed, or after `seconds`, are killed: their status is negative then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rendezvous = folder / "rendezvous"
    rendezvous.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]),
        # As many threads as all ranks together have cores for.
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    ranks = []
    for rank in range(world):
        command = [sys.executable, str(program), "--rank", str(rank), "--world", str(world)]
        command += ["--rendezvous", str(rendezvous), *arguments]
        files = [(folder / f"rank{rank}.{name}").open("wb") for name in ("out", "err")]
        ranks.append(subprocess.Popen(command, env=environment, stdout=files[0], stderr=files[1]))
        for file in files:
            file.close()
    deadline = time.monotonic() + seconds
    try:
        while any(rank.poll() is None for rank in ranks) and time.monotonic() < deadline:
            if any(rank.poll() not in (None, 0) for rank in ranks):
                deadline = min(deadline, time.monotonic() + grace_s)
            time.sleep(0.05)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return [
        Ended(rank.returncode, *((folder / f"rank{number}.{name}").read_text() for name in ("out", "err")))
        for number, rank in enumerate(ranks)
    ]


def check_ended_well(ended: Sequence[Ended]) -> None:
    """Raise AssertionError, with what was printed, where a rank failed."""
    for rank, (status, out, err) in enumerate(ended):
        assert status == 0, f"rank {rank} ended with {status}:\n{out[-2000:]}\n{err[-4000:]}"
