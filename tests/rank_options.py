"""The command line that rank_processes gives to the programs whose runs are listed in a file."""

from __future__ import annotations

import argparse
from pathlib import Path


def rank_options() -> argparse.Namespace:
    """Return rank, world, rendezvous, the file of the runs, and the folder to write to."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--rendezvous", required=True)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()
