"""Random plans for property tests: sources of any shape, mixtures, schedules, packers, operators, lanes."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from hypothesis import strategies as st
from oracle_plan import Corpus, Doc, Plan

PACKERS = ("best_fit", "best_fit_split", "first_fit", "concat", "pad")
NAMES = ("alpha", "beta", "Gamma", "delta")
WEIGHTS = ("1", "0.5", "0.3", "2", "0.001", 7, 0.25)


@dataclass(frozen=True)
class Shape:
    """How a source is made: samples of each shard, samples a block, documents a sample, tokens a document."""

    shards: tuple[int, ...]
    block_samples: int
    documents: str
    lengths: str
    masked: bool
    groups: int
    seed: int


SHAPES = st.builds(
    Shape,
    shards=st.lists(st.integers(1, 12), min_size=1, max_size=4).map(tuple),
    block_samples=st.sampled_from([1, 2, 3, 5, 64]),
    documents=st.sampled_from(["one", "one", "few", "filtered"]),
    lengths=st.sampled_from(["short", "short", "mixed", "long", "single", "row"]),
    masked=st.booleans(),
    groups=st.integers(1, 3),
    seed=st.integers(0, 1 << 20),
)


def number_of_documents(rule: str, rng: random.Random) -> int:
    if rule == "one":
        return 1
    if rule == "few":
        return rng.choice((0, 1, 1, 2, 3))
    return int(rng.random() < 0.08)  # a filter that drops almost everything


def number_of_tokens(rule: str, length: int, rng: random.Random) -> int:
    capacity = length + 1
    choices = {
        "single": lambda: 1,
        "short": lambda: rng.randint(1, max(1, capacity // 2)),
        "mixed": lambda: rng.randint(1, 3 * capacity),
        # Now and then a document of fifty rows; the rest around the row's edge.
        "long": lambda: 50 * length if rng.random() < 0.03 else rng.randint(1, 2 * capacity),
        "row": lambda: capacity + rng.choice((-2, -1, 0, 1, 2)) if capacity > 2 else rng.randint(1, 5),
    }
    return choices[rule]()


def make_samples(shape: Shape, length: int) -> list[list[list[Doc]]]:
    """Return shards of samples of documents; one document a shard fits a row, so that rows come by and by."""
    rng = random.Random(shape.seed)
    shards = []
    for count in shape.shards:
        samples = []
        for _ in range(count):
            docs = []
            for _ in range(number_of_documents(shape.documents, rng)):
                size = number_of_tokens(shape.lengths, length, rng)
                tokens = tuple(rng.randrange(1, 50_000) for _ in range(size))
                mask = tuple(int(rng.random() < 0.7) for _ in tokens) if shape.masked else None
                docs.append(Doc(tokens=tokens, mask=mask, group=rng.randrange(shape.groups)))
            samples.append(docs)
        if not any(len(doc.tokens) <= length + 1 for docs in samples for doc in docs):
            samples[0] = [Doc(tokens=(7,) * (1 + length // 2), mask=(1,) * (1 + length // 2) if shape.masked else None)]
        shards.append(samples)
    return shards


def cut(shards: list[list[list[Doc]]], block_samples: int) -> tuple[tuple[tuple[Doc, ...], ...], ...]:
    """Return the blocks of shards cut by number of samples; no block spans two shards."""
    return tuple(
        tuple(tuple(docs) for docs in samples[i : i + block_samples])
        for samples in shards
        for i in range(0, len(samples), block_samples)
    )


@st.composite
def entries(draw: st.DrawFn, names: list[str]) -> tuple[tuple[int, dict[str, str | float]], ...]:
    result = []
    start = 0
    for _ in range(draw(st.sampled_from([1, 1, 2, 3]))):
        chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=len(names), unique=True))
        result.append((start, {name: draw(st.sampled_from(WEIGHTS)) for name in chosen}))
        start += draw(st.integers(1, 25))
    return tuple(result)


@st.composite
def homogeneous(draw: st.DrawFn, names: list[str]) -> str | dict[str, list[str]]:
    rule = draw(st.sampled_from(["none", "none", "none", "source", "group", "mapping"]))
    if rule != "mapping":
        return rule
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(draw(st.sampled_from(["left", "right"])), []).append(name)
    return groups


@dataclass(frozen=True, repr=False)
class Case:
    """A plan and the shapes of its sources, from which the same data can be written to files."""

    plan: Plan
    shapes: dict[str, Shape]

    def __repr__(self) -> str:
        # The shapes say it all; tokens by the thousand would hide them.
        epochs = {name: corpus.epochs for name, corpus in self.plan.sources.items()}
        return f"Case({replace(self.plan, sources={})!r}, epochs={epochs!r}, shapes={self.shapes!r})"


@st.composite
def cases(draw: st.DrawFn, *, finite: bool | None = None, epochs: bool | None = None) -> Case:
    """Return a random case; `finite` streams have a length, `epochs` allows sources that end."""
    mixtures = draw(entries(draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))))
    names = sorted({name for _, weights in mixtures for name in weights})
    align = draw(st.sampled_from([1, 1, 1, 2, 4]))
    length = align * draw(st.integers(1, 6)) * draw(st.sampled_from([1, 3]))
    shapes = {name: draw(SHAPES) for name in names}
    finite = draw(st.booleans()) if finite is None else finite
    ends = finite if epochs is None else epochs
    sources = {
        name: Corpus(
            blocks=cut(make_samples(shape, length), shape.block_samples),
            mean_tokens=draw(st.integers(1, 3 * length)),
            epochs=draw(st.sampled_from([None, 1, 1, 2])) if ends else None,
        )
        for name, shape in shapes.items()
    }
    plan = Plan(
        seed=draw(st.integers(0, 1 << 40)),
        lanes=draw(st.sampled_from([1, 2, 3, 4, 6, 7, 12])),
        sequence_length=length,
        sources=sources,
        entries=mixtures,
        by=draw(st.sampled_from(["tokens", "tokens", "samples"])),
        kind=draw(st.sampled_from(PACKERS)),
        pool=draw(st.sampled_from([1, 2, 4, 9])),
        long=draw(st.sampled_from(["split", "split", "truncate", "drop"])),
        align=align,
        homogeneous=draw(homogeneous(names)),
        max_age=draw(st.sampled_from([None, 1, 3])),
        shuffles=draw(st.sampled_from([(), (), (1,), (6,), (4, 3)])),
        spread=draw(st.sampled_from([1, 2, 4])),
        mask_boundary=draw(st.booleans()),
        pad=draw(st.sampled_from([0, 3])),
        length=draw(st.integers(1, 60)) if finite else None,
        restart=draw(st.booleans()) if finite else False,
    )
    return Case(plan, shapes)
