"""One rank of a job as a launcher starts it: its number in the environment, then `python -m zephon_megatron.launch`.

`---` ends a command; another may follow, since importing megatron-core takes longer than a small run.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys

END = "---"

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", required=True)
    parser.add_argument("--world", required=True)
    parser.add_argument("--rendezvous", required=True)
    options, words = parser.parse_known_args()
    os.environ.update(RANK=options.rank, WORLD_SIZE=options.world)
    number = 0
    while words:
        end = words.index(END) if END in words else len(words)
        sys.argv[1:], words = words[:end], words[end + 1 :]
        os.environ["RENDEZVOUS"] = f"{options.rendezvous}.{number}"
        number += 1
        try:
            runpy.run_module("zephon_megatron.launch", run_name="__main__", alter_sys=True)
        except SystemExit as ended:
            if ended.code:
                raise
