"""Runs the short benchmarks one after another: `make bench`. Figures and their dates: docs/benchmarks.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
RUNS = (
    ("data.py",),
    ("collate.py",),
    ("overhead.py", "--tokens", "500"),
    ("overhead.py", "--tokens", "1000"),
    ("reading.py",),
    ("start.py",),
    ("throughput.py", "--engine", "fastokens", "--repeats", "3"),
    ("throughput.py", "--engine", "hf", "--repeats", "1", "--seconds", "60"),
    ("memory.py", "--seconds", "60"),
    ("image_data.py",),
    ("images.py",),
)


def main() -> int:
    for script, *arguments in RUNS:
        print(f"\n$ python benchmarks/{' '.join((script, *arguments))}", flush=True)
        if subprocess.run([sys.executable, str(HERE / script), *arguments], check=False).returncode:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
