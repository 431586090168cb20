"""What a document costs besides reading and tokenizing: planning, packing, assembly, digests, states, collation.

`python benchmarks/overhead.py [--tokens 500]` runs the engine on pages made beforehand (64 lanes, three sources,
best_fit, micro-batches [4, 4096] of CPU tensors) in one thread, and prints processor time a document and a row.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np
import torch

from zephon.collate.device import Collator
from zephon.config import Pack
from zephon.engine.appetite import appetite
from zephon.engine.engine import Engine
from zephon.engine.feed import PageFeed
from zephon.engine.history import History
from zephon.lanes.spec import EntrySpec, LaneSpec, SourceSpec
from zephon.page import Location, Order, Page
from zephon.topology import Topology

LANES, CAPACITY, SAMPLES, ROWS = 64, 4097, 64, 4
WEIGHTS = {"code": 3, "web": 5, "wiki": 2}


class Places:
    """An index whose blocks lie nowhere."""

    def location(self, block: int) -> Location:
        return Location("none", "tar", 0, 0, -1, 0, SAMPLES)


class Ready:
    """A backend whose pages are made: an order costs nothing."""

    def __init__(self, mean_tokens: int) -> None:
        drawn = np.random.Generator(np.random.Philox(1))
        self._pages = []
        for _ in range(64):
            lengths = np.maximum(1, drawn.lognormal(math.log(mean_tokens) - 0.5, 1.0, SAMPLES)).astype(np.int64)
            offsets = np.concatenate(([0], np.cumsum(lengths)))
            self._pages.append((drawn.integers(0, 100_000, offsets[-1]).astype(np.uint32), offsets))
        self._orders: dict[int, Order] = {}
        self._tickets = 0

    def submit(self, order: Order) -> int:
        self._tickets += 1
        self._orders[self._tickets] = order
        return self._tickets

    def take(self, ticket: int) -> Page:
        order = self._orders.pop(ticket)
        tokens, offsets = self._pages[order.block % len(self._pages)]
        count = len(order.samples)
        return Page(tokens[: offsets[count]], offsets[: count + 1], np.ones(count, np.int32), None, None, (), 7)

    def drop(self, ticket: int) -> None:
        self._orders.pop(ticket, None)

    def close(self) -> None:
        self._orders.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=500)
    mean = parser.parse_args().tokens
    torch.set_num_threads(1)
    spec = LaneSpec(
        seed=1,
        lanes=LANES,
        capacity=CAPACITY,
        sources=tuple(
            SourceSpec(name=name, num_blocks=100_000, block_samples=[SAMPLES] * 100_000, mean_tokens=mean, epochs=None)
            for name in WEIGHTS
        ),
        entries=(EntrySpec(start=0, weights=WEIGHTS),),
        by_samples=False,
        spread=4,
        max_empty=1000,
        max_bad=None,
        pack=Pack(),
        operators=(),
        metadata=dict.fromkeys(WEIGHTS, ()),
    )
    sizes = appetite(
        num_lanes=LANES, spread=4, workers=2, mean_tokens=dict.fromkeys(WEIGHTS, mean), pages_bytes=512 << 20
    )
    feed = PageFeed(
        spec, dict.fromkeys(WEIGHTS, Places()), Ready(mean), appetite=sizes, skip_bad=False, limit_bytes=1 << 30
    )  # type: ignore[arg-type]
    engine = Engine(
        spec,
        feed,
        Topology(),
        micro_batch_size=ROWS,
        pad_id=0,
        position=0,
        length=None,
        states={},
        plan_ahead=8,
    )
    collator = Collator(
        device=torch.device("cpu"), mask_boundary=True, reset_position_ids=True, attention_mask=False, align=1
    )
    history = History(0, {}, 64)

    def run(batches: int, *, collate: bool) -> tuple[float, int]:
        documents, began = 0, time.process_time()
        for _ in range(batches):
            made = engine.produce()
            if made is None:
                break
            documents = made.counts.documents
            history.add(made.position, made.changes)
            if collate:
                collator.build(made.host)
        return time.process_time() - began, documents

    # Until the lanes' pages are out of step with each other, as they are in a long run.
    _, before = run(2000, collate=False)
    for collate in (False, True):
        best = math.inf
        for _ in range(5):
            took, after = run(200, collate=collate)
            best, before = min(best, took / (after - before)), after
        name = "with collation" if collate else "planned, assembled, digested, snapshot"
        print(f"{mean} tokens a document, {name}: {best * 1e6:.1f} µs a document")


if __name__ == "__main__":
    main()
