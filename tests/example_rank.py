"""One rank of a job as torchrun starts it: its place in the environment, then an example as the main program."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", required=True)
    parser.add_argument("--world", required=True)
    parser.add_argument("--rendezvous", required=True)
    parser.add_argument("--port", required=True)
    parser.add_argument("--example", type=Path, required=True)
    options, rest = parser.parse_known_args()
    os.environ.update(
        RANK=options.rank,
        LOCAL_RANK=options.rank,
        WORLD_SIZE=options.world,
        LOCAL_WORLD_SIZE=options.world,
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=options.port,
    )
    sys.argv[:] = [str(options.example), *rest]
    sys.path.insert(0, str(options.example.parent))
    runpy.run_path(str(options.example), run_name="__main__")
