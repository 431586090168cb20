"""`make demo`: real text, four ranks, a crash, other numbers of ranks, and the same rows all the same.

Builds shards from real text, trains a tokenizer, lets `zephon verify` compare topologies and backends, trains
a small model on four ranks twice, once without and once with a SIGKILL and resumes on 2, 1 and 4 ranks, and
compares both. Ends with status 1 where anything differs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from data import build_data
from report import Line, compare, describe, draw, failures, table
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from segments import Segment, run_segment
from tokenizer import train_tokenizer

ROOT = Path(__file__).resolve().parents[2]
DATA = Path("demo-data")
OUT = Path("demo-out")
CONFIG = Path("configs/demo.yaml")
SAVE_EVERY = 4

UNINTERRUPTED = (Segment(ranks=4, until=40, backend="threads"),)
INTERRUPTED = (
    Segment(ranks=4, until=40, backend="threads", kill_at=14),
    Segment(ranks=2, until=20, backend="processes"),
    Segment(ranks=1, until=28, backend="inline"),
    Segment(ranks=4, until=40, backend="threads"),
)


def main() -> int:
    """Run the demo from start to end; return its exit status."""
    os.chdir(ROOT)  # The configuration's paths start at the repository.
    console = Console()
    began = time.monotonic()
    with console.status("building data") as status:
        about = build_data(DATA, say=status.update)
        for name, line in about.items():
            console.print(f"[bold]{name}[/bold]: {line}", soft_wrap=True)
        status.update("training the tokenizer")
        console.print(f"[bold]tokenizer[/bold]: {train_tokenizer(DATA)}", soft_wrap=True)
    verified = verify(console)
    lines = train(console)
    console.print(table(lines))
    picture = OUT / "loss.png"
    draw(lines, picture)
    found = failures(lines) if verified else ["zephon verify found a difference", *failures(lines)]
    for fact in found:
        console.print(f"[bold red]FAILED[/bold red] {fact}", soft_wrap=True)
    if not found:
        console.print("[bold green]OK[/bold green] every run was fed the same rows; losses differ by rounding only")
    console.print(f"loss curves: {picture}; {time.monotonic() - began:.0f} s in all")
    return 1 if found else 0


def verify(console: Console) -> bool:
    """Return whether `zephon verify` finds the same stream under all topologies and backends."""
    command = ["zephon", "verify", str(CONFIG), "--steps", "6", "--dp-sizes", "1,4"]
    command += ["--backends", "inline,threads,processes", "--workers", "1", "--resume-every", "3"]
    console.print(f"[bold]$ {' '.join(command)}[/bold]", soft_wrap=True)
    program = Path(sys.executable).with_name(command[0])
    same = subprocess.run([str(program), *command[1:]], check=False).returncode == 0
    console.print(f"[bold]verify[/bold]: {'done' if same else 'found a difference'}")
    return same


def train(console: Console) -> list[Line]:
    """Train twice, without and with interruptions; return all segments, compared with the uninterrupted one."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    lines: list[Line] = []
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        for name, segments in (("uninterrupted", UNINTERRUPTED), ("interrupted", INTERRUPTED)):
            run = OUT / name
            shutil.rmtree(run, ignore_errors=True)
            run.mkdir(parents=True)
            task = progress.add_task(name, total=segments[-1].until)
            for segment in segments:
                follow = partial(_show, progress, task)
                outcome = run_segment(segment, config=CONFIG, run=run, save_every=SAVE_EVERY, follow=follow)
                lines.append(compare(segment, outcome, lines[0].outcome if lines else outcome))
                if not console.is_terminal:
                    console.print(f"{name}: {describe(lines[-1])}", soft_wrap=True)
    return lines


def _show(progress: Progress, task: TaskID, step: int) -> None:
    progress.update(task, completed=step + 1)


if __name__ == "__main__":
    sys.exit(main())
