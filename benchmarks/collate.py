"""What collation costs on the CPU, beside the bare int32 -> int64 conversion of tokens and labels.

`python benchmarks/collate.py` prints the least time of many repeats, in microseconds a micro-batch, because other
work on the machine can only add to it; `kept` holds the last 8 batches, as a trainer that prefetches does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from timeit import repeat

import numpy as np
import torch

from zephon.collate.batch import Batch
from zephon.collate.device import Collator
from zephon.collate.host import HostBatch

ROWS, LENGTH = 4, 4096
CPU = torch.device("cpu")


def micro_batch(num_pieces: int) -> HostBatch:
    """Return rows that hold pieces of nearly equal lengths, and a few tokens of padding."""
    rng = np.random.default_rng(num_pieces)
    edges = np.linspace(0, LENGTH - 2, num_pieces // ROWS + 1).astype(int).tolist()
    pieces = [(row, start, stop - start) for row in range(ROWS) for start, stop in pairwise(edges)]
    return HostBatch(
        tokens=rng.integers(0, 100_000, (ROWS, LENGTH + 1)).astype(np.int32),
        pieces=np.array(pieces, np.int32),
        mask=None,
        sequences=tuple(range(ROWS)),
    )


def convert(host: HostBatch) -> list[torch.Tensor]:
    """Return tokens and labels as int64: what no collation can do without."""
    wide = torch.from_numpy(host.tokens)
    return [wide[:, :-1].long(), wide[:, 1:].long()]


def keep(batches: deque[Batch], one: Callable[[], Batch]) -> None:
    """Make a batch while earlier ones are alive."""
    batches.append(one())


def least_us(function: Callable[[], object]) -> float:
    """Return the least time of a call, in microseconds."""
    return min(repeat(function, number=50, repeat=200)) / 50 * 1e6


def main() -> None:
    collator = Collator(device=CPU, mask_boundary=True, reset_position_ids=True, attention_mask=False, align=1)
    for num_pieces in (16, 64):
        host = micro_batch(num_pieces)
        one = partial(collator.build, host)
        cost, kept, bare = (
            least_us(one),
            least_us(partial(keep, deque(maxlen=8), one)),
            least_us(partial(convert, host)),
        )
        print(
            f"b={ROWS} S={LENGTH} pieces={num_pieces}: {cost:.0f} µs, kept {kept:.0f} µs; "
            f"conversion alone {bare:.0f} µs ({cost / bare:.1f} times)"
        )


if __name__ == "__main__":
    main()
