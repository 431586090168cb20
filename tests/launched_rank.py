"""One rank of a job as a launcher starts it: its number in the environment, then `python -m zephon_megatron.launch`."""

from __future__ import annotations

import argparse
import os
import runpy
import sys

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", required=True)
    parser.add_argument("--world", required=True)
    parser.add_argument("--rendezvous", required=True)
    options, sys.argv[1:] = parser.parse_known_args()
    os.environ.update(RANK=options.rank, WORLD_SIZE=options.world, RENDEZVOUS=options.rendezvous)
    runpy.run_module("zephon_megatron.launch", run_name="__main__", alter_sys=True)
