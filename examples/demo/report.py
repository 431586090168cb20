"""Compare the two runs: a table, a verdict and a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
from rich.table import Table
from segments import Outcome, Segment

matplotlib.use("Agg")
# The back end must be chosen before pyplot is imported.
from matplotlib import pyplot as plt

# Sums of 32-bit floats in another order, amplified by the steps taken since; losses are about 7 to 9.
LOSS_TOLERANCE = 1e-4


class Line(NamedTuple):
    """A segment compared with the uninterrupted run."""

    segment: Segment
    outcome: Outcome
    saved: int
    digest: str
    equal: bool
    loss_difference: float


def compare(segment: Segment, outcome: Outcome, reference: Outcome) -> Line:
    """Return how a segment differs from the uninterrupted run at the checkpoints and the steps that it has."""
    saved = max(outcome.digests)
    differences = [abs(loss - reference.losses[step]) for step, loss in outcome.losses.items()]
    if any(math.isnan(difference) for difference in differences):
        # max() would pass over it.
        differences = [math.nan]
    return Line(
        segment=segment,
        outcome=outcome,
        saved=saved,
        digest=outcome.digests[saved],
        equal=all(reference.digests.get(step) == digest for step, digest in outcome.digests.items()),
        loss_difference=max(differences, default=0.0),
    )


def failures(lines: Sequence[Line]) -> list[str]:
    """Return what a reader must know: one line for each segment that isn't as promised."""
    found = []
    for line in lines:
        name = f"steps {line.outcome.first} to {max(line.outcome.losses)} on {ranks(line.segment)}"
        if not line.equal:
            found.append(f"{name}: the stream's digest differs from the uninterrupted run's")
        if not line.loss_difference <= LOSS_TOLERANCE:
            found.append(f"{name}: losses differ by {line.loss_difference:.2e}, more than {LOSS_TOLERANCE:.0e}")
    return found


def describe(line: Line) -> str:
    """Return what a segment did, in one line."""
    end = "done" if line.segment.kill_at is None else f"killed in step {line.segment.kill_at}"
    steps = f"steps {line.outcome.first} to {max(line.outcome.losses)}"
    return f"{steps} on {ranks(line.segment)} ({line.segment.backend}), {end}, checkpoint at {line.saved}"


def ranks(segment: Segment) -> str:
    """Return the number of ranks in words that fit it."""
    return "1 rank" if segment.ranks == 1 else f"{segment.ranks} ranks"


def table(lines: Sequence[Line]) -> Table:
    """Return the comparison as a table, a row for each segment: digest at its last checkpoint, largest |Δloss|."""
    result = Table(title="the same stream, killed, and resumed on other numbers of ranks", title_justify="left")
    for heading in ("run", "ranks", "backend", "steps", "digest at last\ncheckpoint", "same", "|Δloss|"):
        result.add_column(heading, justify="right" if heading in ("ranks", "|Δloss|") else "left", no_wrap=True)
    for index, line in enumerate(lines):
        kill_at = line.segment.kill_at
        run = "whole" if index == 0 else "resumed" if kill_at is None else f"killed in {kill_at}"
        result.add_row(
            run,
            str(line.segment.ranks),
            line.segment.backend,
            f"{line.outcome.first}–{max(line.outcome.losses)}",
            line.digest[:12],
            "yes" if line.equal else "NO",
            "–" if index == 0 else f"{line.loss_difference:.1e}",
        )
    return result


def draw(lines: Sequence[Line], path: Path) -> None:
    """Write both loss curves over each other, and their difference below, as a PNG."""
    reference = lines[0].outcome.losses
    figure, (upper, lower) = plt.subplots(2, 1, sharex=True, figsize=(8, 6), height_ratios=[3, 1])
    upper.plot(list(reference), list(reference.values()), color="0.7", linewidth=5, label="uninterrupted")
    for line in lines[1:]:
        steps = list(line.outcome.losses)
        label = f"from step {line.outcome.first} on {ranks(line.segment)} ({line.segment.backend})"
        (curve,) = upper.plot(steps, list(line.outcome.losses.values()), linewidth=1.5, label=label)
        differences = [abs(line.outcome.losses[step] - reference[step]) for step in steps]
        lower.plot(steps, differences, ".", color=curve.get_color())
        if line.segment.kill_at is not None:
            upper.axvline(line.segment.kill_at, color="0.3", linestyle=":", label="SIGKILL")
    upper.set_title("One stream: trained without a stop, and killed and resumed on other numbers of ranks")
    upper.set_ylabel("loss per token")
    upper.legend()
    lower.set_ylabel("|Δloss|")
    lower.set_xlabel("step")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
