"""Start the ranks of a part of a run, follow them, kill them where that is asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

TRAIN = Path(__file__).with_name("train.py")
EXIT_S = 60


class Segment(NamedTuple):
    """A part of a run: so many ranks, up to step `until` (exclusive); killed in the middle of step `kill_at`."""

    ranks: int
    until: int
    backend: str
    kill_at: int | None = None


class Outcome(NamedTuple):
    """What rank 0 told: the first step, the loss of each step taken, the digest at each checkpoint written."""

    first: int
    losses: dict[int, float]
    digests: dict[int, str]


def run_segment(
    segment: Segment,
    *,
    config: Path,
    run: Path,
    save_every: int,
    follow: Callable[[int], None],
    script: Path = TRAIN,
) -> Outcome:
    """Run a segment of `script` from the checkpoint in `run`, calling `follow` with each step taken.

    Every rank's standard error goes to a file in `run`. Raises SystemExit, with the last line of it, where a
    rank ends with a status other than 0 without having been killed.
    """
    with tempfile.TemporaryDirectory() as folder:
        ranks = [_start(segment, rank, script, config, run, save_every, Path(folder)) for rank in range(segment.ranks)]
        try:
            outcome = _listen(ranks, segment.kill_at, follow)
            statuses = [process.wait(EXIT_S) for process in ranks]
        finally:
            _kill(ranks)
            if ranks[0].stdout is not None:
                ranks[0].stdout.close()
    if segment.kill_at in outcome.losses:
        raise SystemExit(f"demo: step {segment.kill_at} was over before the ranks were killed; run the demo again")
    if segment.kill_at is None:
        for rank, status in enumerate(statuses):
            if status != 0:
                lines = _log(run, rank).read_text().strip().splitlines() or ["nothing on standard error"]
                raise SystemExit(f"demo: rank {rank} of {segment.ranks} ended with status {status}: {lines[-1]}")
    return outcome


def _start(
    segment: Segment, rank: int, script: Path, config: Path, run: Path, save_every: int, folder: Path
) -> subprocess.Popen[str]:
    command = [sys.executable, str(script), "--config", str(config), "--run", str(run)]
    command += ["--set", f"backend.kind={segment.backend}", "--rendezvous", str(folder / "rendezvous")]
    command += ["--rank", str(rank), "--ranks", str(segment.ranks)]
    command += ["--until", str(segment.until), "--save-every", str(save_every)]
    # One machine: no name look-up, and no thread pools that fight for two cores.
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"}
    with _log(run, rank).open("w") as log:
        told = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
        return subprocess.Popen(command, stdout=told, stderr=log, text=True, env=environment)


def _listen(ranks: list[subprocess.Popen[str]], kill_at: int | None, follow: Callable[[int], None]) -> Outcome:
    outcome = Outcome(0, {}, {})
    for line in ranks[0].stdout or ():
        told: dict[str, Any] = json.loads(line)
        match told["event"]:
            case "start":
                outcome = outcome._replace(first=told["step"])
            case "midway" if told["step"] == kill_at:
                _kill(ranks)
            case "step":
                outcome.losses[told["step"]] = told["loss"]
                follow(told["step"])
            case "saved":
                outcome.digests[told["step"]] = told["digest"]
    return outcome


def _kill(ranks: list[subprocess.Popen[str]]) -> None:
    for process in ranks:
        if process.poll() is None:
            process.kill()  # SIGKILL: no handler runs, nothing is saved.
    for process in ranks:
        process.wait()


def _log(run: Path, rank: int) -> Path:
    return run / f"rank{rank}.log"
