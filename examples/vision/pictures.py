"""A small image-text model on real pictures with captions: two ranks, a crash, one rank, and the same rows.

`python examples/vision/pictures.py` builds shards from a Debian package (160 MB to fetch), shows what a stream
holds, and trains on two ranks twice: without interruption, and with a SIGKILL and resumes on one rank and on two.
Ends with status 1 where digests or losses differ.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "demo"))

from picture_data import build_pictures
from segments import Outcome, Segment, run_segment

ROOT = Path(__file__).resolve().parents[2]
HERE = Path("examples/vision")
DATA = Path("pictures-data")
OUT = Path("pictures-out")
SAVE_EVERY = 4
# Rounding: gradients are added up in another order. Losses are 8 to 5.
LOSS_TOLERANCE = 1e-3

UNINTERRUPTED = (Segment(ranks=2, until=40, backend="threads"),)
INTERRUPTED = (
    Segment(ranks=2, until=40, backend="threads", kill_at=14),
    Segment(ranks=1, until=24, backend="processes"),
    Segment(ranks=2, until=40, backend="threads"),
)


def main() -> int:
    """Run it all; return the exit status."""
    os.chdir(ROOT)
    DATA.mkdir(exist_ok=True)
    print(build_pictures(DATA), flush=True)
    program = Path(sys.executable).with_name("zephon")
    subprocess.run([str(program), "run", str(HERE / "pictures.yaml"), "--steps", "20", "--dp-size", "2"], check=True)
    (reference,) = train("uninterrupted", UNINTERRUPTED)
    differing = False
    for outcome in train("interrupted", INTERRUPTED):
        equal = all(reference.digests[step] == digest for step, digest in outcome.digests.items())
        gap = max(abs(loss - reference.losses[step]) for step, loss in outcome.losses.items())
        steps = f"steps {outcome.first} to {max(outcome.losses)}"
        print(f"{steps}: digests {'equal' if equal else 'DIFFER'}, losses within {gap:.1e}", flush=True)
        differing = differing or not equal or not gap <= LOSS_TOLERANCE
    return int(differing)


def train(name: str, segments: tuple[Segment, ...]) -> list[Outcome]:
    """Return what the segments of a run gave."""
    run = OUT / name
    shutil.rmtree(run, ignore_errors=True)
    run.mkdir(parents=True)
    outcomes = []
    for segment in segments:
        outcome = run_segment(
            segment,
            config=HERE / "pictures.yaml",
            run=run,
            save_every=SAVE_EVERY,
            follow=lambda _: None,
            script=HERE / "train_pictures.py",
        )
        first, last = min(outcome.losses), max(outcome.losses)
        end = f"killed in step {segment.kill_at}" if segment.kill_at is not None else f"step {last}"
        print(
            f"{name}, {segment.ranks} ranks, {segment.backend}: loss {outcome.losses[first]:.3f} at step {first}, "
            f"{outcome.losses[last]:.3f} at step {last}; {end}",
            flush=True,
        )
        outcomes.append(outcome)
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
