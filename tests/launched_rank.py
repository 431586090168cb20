"""One rank of a job as a launcher starts it: its number in the environment, then `python -m zephon_megatron.launch`.

`---` ends a command; another may follow, since importing megatron-core takes longer than a small run. `{rank}`,
`{world}` and `{rendezvous}` in a word are this rank's.
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
    # What comes behind may have options of these names, for the script.
    options, words = parser.parse_args(sys.argv[1:7]), sys.argv[7:]
    os.environ.update(RANK=options.rank, WORLD_SIZE=options.world)
    number = 0
    while words:
        end = words.index(END) if END in words else len(words)
        sys.argv[1:], words = words[:end], words[end + 1 :]
        os.environ["RENDEZVOUS"] = f"{options.rendezvous}.{number}"
        for name, value in vars(options).items():
            sys.argv[1:] = [word.replace(f"{{{name}}}", value) for word in sys.argv[1:]]
        number += 1
        try:
            runpy.run_module("zephon_megatron.launch", run_name="__main__", alter_sys=True)
        except SystemExit as ended:
            if ended.code:
                raise
