"""The planner alone: a lane fed with recorded lengths, without files, stages or tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from oracle_mixing import integers
from oracle_plan import Plan

from zephon.config import OperatorConfig, Pack
from zephon.item import Item, Row
from zephon.lanes.spec import EntrySpec, LaneSpec, SourceSpec


class RecordedBlock:
    """A block of which only (length, group) of each document is known."""

    def __init__(self, items: list[list[Item]], taken: int, count: Callable[[Sequence[Item]], None]) -> None:
        self._items, self._taken, self._count = items, taken, count

    @property
    def samples(self) -> int:
        return len(self._items)

    @property
    def block_hash(self) -> int:
        return 0

    def take(self) -> Sequence[Item] | None:
        items = self._items[self._taken]
        self._taken += 1
        self._count(items)
        return items

    def expect(self) -> None:
        """Do nothing: a record is there."""

    def close(self) -> None:
        pass


class RecordedFeed:
    """Opens recorded blocks; `look` blocks ahead, which must change nothing.

    `charged` counts what was taken of each source, as the mixer is to charge it: 1,024 a token, and 1 a
    sample without documents.
    """

    def __init__(self, plan: Plan, spec: LaneSpec, look: int) -> None:
        self._plan, self._spec, self._look = plan, spec, look
        self.charged: dict[str, int] = {}

    def open(self, source: str, q: int, taken: int, block_hash: int, *, ahead: bool) -> RecordedBlock:
        place = next(s for s in self._spec.sources if s.name == source)
        _, block, samples = place.place(self._spec.seed, q)
        documents = self._plan.sources[source].blocks[block]

        def count(items: Sequence[Item]) -> None:
            charge = 1024 * sum(item.length for item in items) or 1
            self.charged[source] = self.charged.get(source, 0) + charge

        return RecordedBlock([self._items(source, q, number, documents[number]) for number in samples], taken, count)

    def ahead(self, source: str) -> int:
        return self._look

    def reserve(self, source: str, samples: int) -> int:
        return samples * self._look // 3

    def _items(self, source: str, q: int, number: int, documents: Sequence) -> list[Item]:
        items = []
        for part, document in enumerate(documents):
            length = len(document.tokens)
            if length > self._plan.capacity and self._plan.long != "split":
                if self._plan.long == "drop":
                    continue
                length = self._plan.capacity
            items.append(Item(source, q, number, part, 0, length, (document.group,)))
        return items


def spec_of(plan: Plan) -> LaneSpec:
    """Return the lanes' spec of an oracle's plan."""
    return LaneSpec(
        seed=plan.seed,
        lanes=plan.lanes,
        capacity=plan.capacity,
        sources=tuple(
            SourceSpec(
                name=name,
                num_blocks=len(corpus.blocks),
                block_samples=[len(block) for block in corpus.blocks],
                mean_tokens=corpus.mean_tokens,
                epochs=corpus.epochs,
            )
            for name, corpus in sorted(plan.sources.items())
        ),
        entries=tuple(EntrySpec(start=start, weights=integers(weights)) for start, weights in plan.entries),
        by_samples=plan.by == "samples",
        spread=plan.spread,
        max_empty=10_000,
        max_bad=None,
        pack=Pack(
            kind=plan.kind,
            pool=plan.pool,
            long=plan.long,
            align=plan.align,
            homogeneous=plan.homogeneous,
            max_age=plan.max_age,
        ),
        operators=tuple(OperatorConfig(kind="shuffle", options={"buffer": buffer}) for buffer in plan.shuffles),
        metadata=dict.fromkeys(plan.sources, ("group",)),
    )


def pieces_of(row: Row | None) -> list[tuple[str, int, int, int, int, int, int]] | None:
    """Return a planned row as the oracle writes it: (source, q, sample, part, start, stop, offset)."""
    if row is None:
        return None
    return [(s.item.source, s.item.q, s.item.sample, s.item.part, s.start, s.stop, s.offset) for s in row.spans]
