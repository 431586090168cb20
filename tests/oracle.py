"""The stream by definition: docs/stream.md written down a second time, slowly and naively.

Nothing here comes from the engine or is shared with it. It holds every token in memory, sorts where the
page says sorted, scans where the page says lowest, and knows no topology, state, worker or batch.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import xxhash
from oracle_mixing import Mixer
from oracle_packing import Packing, Shuffle
from oracle_plan import Corpus, Doc, Piece, Plan

__all__ = ["Corpus", "Doc", "Lane", "Oracle", "Plan", "Row", "count_rows"]


@dataclass(frozen=True)
class Row:
    """A sequence: tokens and `predicted` [C], labels' `loss_mask` [S], `cu_seqlens`, and its digest.

    `planned` is False for the masked rows of a finite stream: n >= M, or a lane that ran dry.
    """

    n: int
    planned: bool
    tokens: list[int]
    pieces: list[tuple[str, int, int, int, int, int, int]]
    loss_mask: list[int]
    cu_seqlens: list[int]
    digest: int


class Lane:
    """One lane in one pass: `row()` gives its sequences one by one, None where it ran dry."""

    def __init__(self, plan: Plan, lane: int, number: int) -> None:
        self.plan, self.lane, self.k = plan, lane, 0
        self.mixer = Mixer(plan, lane, number)
        self.chain: list[Shuffle | Packing] = [
            *(Shuffle(plan, position, lane, buffer) for position, buffer in enumerate(plan.shuffles)),
            Packing(plan),
        ]

    def row(self) -> list[Piece] | None:
        row = self.output(len(self.chain) - 1)
        if row is not None:
            self.k += 1
        return row

    def output(self, at: int):
        while True:
            out = self.chain[at].pop(last=False)
            if out is not None:
                return out
            if at == 0:
                more = self.mixer.pull(self.lane + self.plan.lanes * self.k)
            else:
                item = self.output(at - 1)
                more = None if item is None else [item]
            if more is None:
                return self.chain[at].pop(last=True)
            for item in more:
                self.chain[at].push(item)


def make_row(plan: Plan, n: int, pieces: list[Piece] | None) -> Row:
    """Lay pieces out as a row of C tokens with its loss mask, segments and digest."""
    size = plan.capacity
    tokens, own, first, covered = [plan.pad] * size, [0] * size, [False] * size, [False] * size
    ends = 0
    masked = False
    for piece in pieces or []:
        for i in range(piece.start, piece.stop):
            o = piece.offset + i - piece.start
            tokens[o] = piece.item.tokens[i]
            own[o] = 1 if piece.item.doc.mask is None else piece.item.doc.mask[i]
            covered[o] = True
            first[o] = i == piece.start
        masked = masked or piece.item.doc.mask is not None
        ends = piece.offset + piece.stop - piece.start
    loss = [
        int(covered[i] and covered[i - 1] and own[i] == 1 and not (plan.mask_boundary and first[i]))
        for i in range(1, size)
    ]
    # Padding starts at a multiple of `align`: context parallelism divides every segment.
    starts = [piece.offset for piece in pieces or []] + [-(-ends // plan.align) * plan.align]
    cu = [s for s in starts if s < plan.sequence_length] + [plan.sequence_length]
    data = struct.pack(f"<{size}i", *tokens)
    for piece in pieces or []:
        data += struct.pack("<ii", piece.offset, piece.stop - piece.start)
    if masked:
        data += bytes(own)
    for piece in pieces or []:
        for place, *shape, digest in piece.item.doc.images:
            if piece.start <= place < piece.stop:
                data += struct.pack("<8iQ", piece.offset + place - piece.start, *shape, digest)
    return Row(
        n=n,
        planned=pieces is not None,
        tokens=tokens,
        pieces=[piece.reference for piece in pieces or []],
        loss_mask=loss,
        cu_seqlens=cu,
        digest=xxhash.xxh3_64(data).intdigest(),
    )


class Oracle:
    """The stream of a plan: rows in order, and the digests of all that was given so far."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.digests = [bytes(16)] * plan.lanes
        self.lanes: list[Lane] = []
        self.consumed = 0

    def rows(self, *, passes: int | None = None) -> Iterator[Row]:
        """Yield every row of an endless stream; of a finite one those n < M of `passes` passes (None: for ever).

        `consumed` and the digests are those after the row last yielded.
        """
        number = 0
        while passes is None or number < passes:
            self.start_pass(number)
            n = 0
            while self.plan.length is None or n < self.plan.length:
                yield self.next_row(n)
                n += 1
            number += 1

    def start_pass(self, number: int) -> None:
        p = 0 if self.plan.restart else number
        self.lanes = [Lane(self.plan, lane, p) for lane in range(self.plan.lanes)]

    def next_row(self, n: int) -> Row:
        lane = n % self.plan.lanes
        row = make_row(self.plan, n, self.lanes[lane].row())
        if row.planned:
            chained = self.digests[lane] + struct.pack("<Q", row.digest)
            self.digests[lane] = hashlib.blake2b(chained, digest_size=16).digest()
        self.consumed += 1
        return row

    def stream_digest(self, consumed: int) -> str:
        head = struct.pack("<QI", consumed, self.plan.lanes)
        return hashlib.blake2b(head + b"".join(self.digests), digest_size=16).hexdigest()

    def pulled(self) -> dict[str, int]:
        """Tokens (or samples) pulled from each source in this pass, over all lanes."""
        total: dict[str, int] = {}
        for lane in self.lanes:
            for name, count in lane.mixer.pulled.items():
                total[name] = total.get(name, 0) + count
        return total


def count_rows(plan: Plan) -> list[int]:
    """Return how many rows each lane of a plan with only finite sources gives before it is dry."""
    result = []
    for lane in range(plan.lanes):
        source, count = Lane(plan, lane, 0), 0
        while source.row() is not None:
            count += 1
        result.append(count)
    return result
