"""The oracle's sources and mixer: which sample a lane pulls next."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import reduce
from math import gcd, lcm

from oracle_plan import Doc, Item, Plan, draw, key, permute, shuffled


class Cursor:
    """A lane's open blocks in one source, in one pass."""

    def __init__(self, plan: Plan, name: str, lane: int, number: int) -> None:
        self.plan, self.name, self.lane, self.number = plan, name, lane, number
        self.corpus = plan.sources[name]
        blocks, epochs = len(self.corpus.blocks), self.corpus.epochs
        self.base = number * (2**32 if epochs is None else epochs) * blocks
        self.end = None if epochs is None else self.base + epochs * blocks
        self.pulls = 0
        self.next_k = 0
        self.open: list[list[int]] = []  # [q, samples taken]
        for _ in range(plan.spread):
            self.open += self.next_block()

    def next_block(self) -> list[list[int]]:
        q = self.lane + self.plan.lanes * self.next_k + self.base
        if self.end is not None and q >= self.end:
            return []
        self.next_k += 1
        return [[q, 0]]

    def pull(self) -> tuple[int, int, tuple[Doc, ...]]:
        """Return (q, sample, documents) of the next sample."""
        seed, name, blocks = self.plan.seed, self.name, self.corpus.blocks
        at = draw(key(seed, "spread", name, self.lane, self.number), self.pulls) % len(self.open)
        self.pulls += 1
        q, taken = self.open[at]
        epoch, slot = divmod(q, len(blocks))
        block = permute(key(seed, "blocks", name, epoch), slot, len(blocks))
        sample = shuffled(key(seed, "samples", name, epoch, block), len(blocks[block]))[taken]
        if taken + 1 < len(blocks[block]):
            self.open[at] = [q, taken + 1]
        else:
            self.open[at : at + 1] = self.next_block()
        return q, sample, blocks[block][sample]


def integers(weights: dict[str, str | float]) -> dict[str, int]:
    """Return the smallest integers in the proportions of decimal weights."""
    exact = {name: Fraction(str(weight)) for name, weight in weights.items()}
    scale = lcm(*(w.denominator for w in exact.values()))
    whole = {name: int(w * scale) for name, w in exact.items()}
    divisor = reduce(gcd, whole.values())
    return {name: w // divisor for name, w in whole.items()}


class Mixer:
    """Stride scheduling over the cursors of one lane."""

    def __init__(self, plan: Plan, lane: int, number: int) -> None:
        self.plan, self.lane, self.number = plan, lane, number
        self.cursors: dict[str, Cursor] = {}
        self.passes: dict[str, int] = {}
        self.pulled: dict[str, int] = {}
        self.at = 0
        self.strides = self.strides_of(0)
        for name in sorted(self.strides):
            self.join(name, 0)

    def strides_of(self, entry: int) -> dict[str, int]:
        weights = integers(self.plan.entries[entry][1])
        return {name: sum(weights.values()) * 2**32 // w for name, w in weights.items()}

    def join(self, name: str, low: int) -> None:
        plan = self.plan
        if name not in self.cursors:
            self.cursors[name] = Cursor(plan, name, self.lane, self.number)
        u = draw(key(plan.seed, "phase", name, self.lane), self.number)
        mean = plan.sources[name].mean_tokens if plan.by == "tokens" else 1
        self.passes[name] = low + u * mean * 1024 * self.strides[name] // 2**64

    def live(self) -> list[str]:
        return sorted(name for name in self.strides if self.cursors[name].open)

    def advance(self) -> None:
        """Enter the next entry."""
        old, live = self.strides, self.live()
        low = min((self.passes[name] for name in live), default=0)
        self.at += 1
        self.strides = self.strides_of(self.at)
        stay = sorted(name for name in self.strides if name in old)
        for name in stay:
            self.passes[name] = (self.passes[name] - low) * self.strides[name] // old[name]
        # The page says "lowest of these": read as those that can still be pulled.
        low = min((self.passes[name] for name in stay if name in live), default=0)
        for name in sorted(self.strides):
            if name not in stay:
                self.join(name, low)

    def pull(self, sequence: int) -> list[Item] | None:
        """Return the documents of the next sample, or None where the lane's sources are used up."""
        entries = self.plan.entries
        while self.at + 1 < len(entries) and (sequence >= entries[self.at + 1][0] or not self.live()):
            self.advance()
        if not self.live():
            return None
        name = min(self.live(), key=lambda name: (self.passes[name], name))
        q, sample, docs = self.cursors[name].pull()
        items = [
            Item(doc=doc, tokens=doc.tokens, source=name, q=q, sample=sample, part=part)
            for part, doc in enumerate(docs)
        ]
        capacity = self.plan.capacity
        if self.plan.long == "truncate":
            items = [replace(item, tokens=item.tokens[:capacity]) for item in items]
        elif self.plan.long == "drop":
            items = [item for item in items if len(item.tokens) <= capacity]
        tokens = sum(len(item.tokens) for item in items)
        self.pulled[name] = self.pulled.get(name, 0) + (tokens if self.plan.by == "tokens" else 1)
        charge = 1024 if self.plan.by == "samples" else 1024 * tokens if tokens else 1
        self.passes[name] += charge * self.strides[name]
        return items
