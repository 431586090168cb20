"""Resident memory: flat over time with 64 lanes x 3 sources, and bounded with 1,024 lanes x 20 sources.

`python benchmarks/memory.py [--seconds 600]` and `python benchmarks/memory.py --many [--rounds 3]`

The first prints the resident memory of the trainer's process and its workers every tenth of the time; the
second after each round of lanes. Needs bench-data/ (benchmarks/data.py builds it).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from zephon import Loader

DATA = Path("bench-data")
KINDS = {"manuals": ("tar", "txt"), "languages": ("jsonl.zst", "text"), "code": ("parquet", "content")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--many", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backend", default="processes")
    arguments = parser.parse_args()
    config = settings(64, list(KINDS), arguments.backend)
    if arguments.many:
        config = settings(1024, [f"{kind}-{number}" for number in range(7) for kind in KINDS][:20], arguments.backend)
    with Loader(config) as loader:
        batches = iter(loader)
        began = time.perf_counter()
        for part in range(1, (arguments.rounds if arguments.many else 10) + 1):
            if arguments.many:
                while loader.consumed < 1024 * part:
                    next(batches)
            else:
                while time.perf_counter() < began + part * arguments.seconds / 10:
                    next(batches)
            own, workers = resident(os.getpid()), [resident(pid) for pid in children(os.getpid())]
            print(
                f"{time.perf_counter() - began:6.0f} s, {loader.consumed} rows: {own / 1e6:.2f} GB resident here, "
                f"{', '.join(f'{one / 1e6:.2f}' for one in workers) or 'none'} in workers",
                flush=True,
            )


def settings(lanes: int, sources: list[str], backend: str) -> dict[str, Any]:
    about = json.loads((DATA / "corpus.json").read_text())
    return {
        "lanes": lanes,
        "global_batch_size": lanes,
        "micro_batch_size": 4,
        "sequence_length": 4096,
        "sources": {
            name: {
                "path": str(DATA / "short" / f"{name.split('-')[0]}-*.{KINDS[name.split('-')[0]][0]}"),
                "weight": 1,
                "stage": {"kind": "text", "field": KINDS[name.split("-")[0]][1]},
            }
            for name in sources
        },
        "tokenizer": {
            "path": str(DATA / "tokenizer.json"),
            "eos": "<|end_of_text|>" if about["tokenizer"].startswith("llama") else "<|endoftext|>",
        },
        "backend": {"kind": backend, "workers": 2},
        "device": "cpu",
        "index_dir": str(DATA / "index"),
    }


def resident(pid: int) -> int:
    """Return a process's resident memory in kB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    return 0


def children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split() if Path(f"/proc/{line}").exists()]


if __name__ == "__main__":
    main()
