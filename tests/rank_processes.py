"""Real processes of one job, one a rank: started together, never left behind.

The ranks are forked from one process that has imported what takes longest; no thread is started before.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import runpy
import signal
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
    program: Path,
    arguments: Sequence[str],
    *,
    world: int,
    folder: Path,
    seconds: float,
    grace_s: float = 20.0,
    preload: Sequence[str] = ("megatron.core",),
) -> list[Ended]:
    """Run `program --rank R --world N --rendezvous FILE arguments…` for each rank and return how they ended.

    Ranks still there `grace_s` after one failed, or after `seconds`, are killed: their status is negative then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("rendezvous*"):
        stale.unlink()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]),
        # As many threads as all ranks together have cores for.
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    told = [str(program), str(folder), str(world), str(seconds), str(grace_s), ",".join(preload), *arguments]
    parent = subprocess.Popen([sys.executable, __file__, *told], env=environment, start_new_session=True)
    try:
        parent.wait(seconds + 60)
    finally:
        # Whatever happened: all of the job's processes are in its session.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
    statuses = json.loads((folder / "statuses.json").read_text())
    return [
        Ended(status, *((folder / f"rank{rank}.{name}").read_text() for name in ("out", "err")))
        for rank, status in enumerate(statuses)
    ]


def check_ended_well(ended: Sequence[Ended]) -> None:
    """Raise AssertionError, with what was printed, where a rank failed."""
    for rank, (status, out, err) in enumerate(ended):
        assert status == 0, f"rank {rank} ended with {status}:\n{out[-2000:]}\n{err[-4000:]}"


def main(program: str, folder: Path, world: int, seconds: float, grace_s: float, preload: list[str]) -> None:
    """Fork the ranks, wait for them, and write down how they ended."""
    (folder / "statuses.json").unlink(missing_ok=True)
    for name in preload:
        importlib.import_module(name)
    fork = multiprocessing.get_context("fork")
    ranks = [fork.Process(target=be_rank, args=(program, folder, rank, world)) for rank in range(world)]
    for rank in ranks:
        rank.start()
    deadline = time.monotonic() + seconds
    while any(rank.is_alive() for rank in ranks) and time.monotonic() < deadline:
        if any(rank.exitcode not in (None, 0) for rank in ranks):
            deadline = min(deadline, time.monotonic() + grace_s)
            grace_s = float("inf")
        time.sleep(0.05)
    for rank in ranks:
        rank.kill()
        rank.join()
    (folder / "statuses.json").write_text(json.dumps([rank.exitcode for rank in ranks]))


def be_rank(program: str, folder: Path, rank: int, world: int) -> None:
    """Run the program as one rank; what it prints goes to files."""
    for descriptor, name in ((1, "out"), (2, "err")):
        with (folder / f"rank{rank}.{name}").open("wb") as file:
            os.dup2(file.fileno(), descriptor)
    sys.argv[:] = [program, "--rank", str(rank), "--world", str(world), "--rendezvous", str(folder / "rendezvous")]
    sys.argv += ARGUMENTS
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    ARGUMENTS = sys.argv[7:]
    main(
        sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), float(sys.argv[5]), sys.argv[6].split(",")
    )
