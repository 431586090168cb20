"""The oracle against rows worked out by hand, so that it and the engine can't share a misreading."""

from __future__ import annotations

from dataclasses import replace

import pytest
from oracle import Oracle, make_row
from oracle_mixing import Mixer, integers
from oracle_packing import Packing, Shuffle
from oracle_plan import Corpus, Doc, Item, Plan, draw, key

PLAN = Plan(seed=1, lanes=1, sequence_length=9, sources={}, entries=((0, {"a": 1}),), pool=3)


def item(name: str, length: int, *, source: str = "a", mask: tuple[int, ...] | None = None) -> Item:
    tokens = tuple(100 * (ord(name) - 96) + i for i in range(length))
    return Item(doc=Doc(tokens, mask), tokens=tokens, source=source, q=ord(name) - 97, sample=0, part=0)


def rows(plan: Plan, *lengths: int, sources: str = "") -> list[str]:
    """Push documents a, b, c… one by one; return rows as "a0:5@0 …" (document, tokens, offset), ? for last ones."""
    packing, found = Packing(plan), []
    for number, length in enumerate(lengths):
        source = sources[number] if sources else "a"
        packing.push(item(chr(97 + number), length, source=source))
        while (row := packing.pop(last=False)) is not None:
            found.append(written(row))
    while (row := packing.pop(last=True)) is not None:
        found.append(written(row) + "?")
    return found


def written(row: list) -> str:
    return " ".join(f"{chr(97 + p.item.q)}{p.start}:{p.stop}@{p.offset}" for p in row)


@pytest.mark.parametrize(
    ("changes", "lengths", "expected"),
    [
        # Rows of 10 tokens, a pool of 3. With a, b, c waiting: a first, then the longest that fits.
        ({"kind": "best_fit"}, (5, 2, 4, 6), ["a0:5@0 c0:4@5", "b0:2@0 d0:6@2?"]),
        ({"kind": "first_fit"}, (5, 2, 4, 6), ["a0:5@0 b0:2@5", "c0:4@0 d0:6@4?"]),
        # Equals: the oldest. A long one keeps its place and goes on in the next row.
        ({"kind": "best_fit"}, (4, 3, 3, 3), ["a0:4@0 b0:3@4 c0:3@7", "d0:3@0?"]),
        ({"kind": "best_fit"}, (23, 3, 7), ["a0:10@0", "a10:20@0", "a20:23@0 c0:7@3", "b0:3@0?"]),
        # Nothing fits behind a: the oldest waiting one is cut to the room, and starts the next row.
        ({"kind": "best_fit_split"}, (6, 8, 9), ["a0:6@0 b0:4@6", "b4:8@0 c0:6@4?", "c6:9@0?"]),
        # Room for one token only: nothing is cut.
        ({"kind": "best_fit_split"}, (9, 8, 8), ["a0:9@0", "b0:8@0 c0:2@8?", "c2:8@0?"]),
        ({"kind": "pad"}, (3, 12), ["a0:3@0", "b0:10@0", "b10:12@0"]),
        # The last token of a full row is the first of the next one, even where its document has ended.
        ({"kind": "concat"}, (6, 8), ["a0:6@0 b0:4@6", "b3:8@0?"]),
        ({"kind": "concat"}, (10, 3), ["a0:10@0", "a9:10@0 b0:3@1?"]),
        ({"kind": "concat"}, (10,), ["a0:10@0"]),
        # Documents start at multiples of 3: 4 tokens take 6, and 5 more don't fit behind them.
        ({"kind": "best_fit", "align": 3}, (4, 5, 4), ["a0:4@0 c0:4@6", "b0:5@0?"]),
        ({"kind": "concat", "align": 3}, (4, 9), ["a0:4@0 b0:4@6", "b3:9@0?"]),
    ],
)
def test_packers(changes: dict, lengths: tuple[int, ...], expected: list[str]) -> None:
    assert rows(replace(PLAN, **changes), *lengths) == expected


def test_groups_are_apart_and_none_waits_for_ever() -> None:
    plan = replace(PLAN, kind="best_fit", pool=2, homogeneous="source", max_age=2)
    # y has one document waiting and never gets a second; after two rows of x it goes out alone.
    found = rows(plan, 5, 6, 6, 7, 7, 8, sources="yxxxxx")
    assert found == ["b0:6@0", "c0:6@0", "a0:5@0", "d0:7@0", "e0:7@0", "f0:8@0?"]


def test_shuffle_moves_its_last_item_to_the_place_of_the_one_it_gives() -> None:
    shuffle = Shuffle(PLAN, 0, 0, 3)
    items = [item(name, 1) for name in "abc"]
    for one in items[:2]:
        shuffle.push(one)
    assert shuffle.pop(last=False) is None
    shuffle.push(items[2])
    at = draw(key(1, "shuffle", 0, 0), 0) % 3
    assert shuffle.pop(last=False) is items[at]
    assert shuffle.items == ([items[2], items[1]], [items[0], items[2]], items[:2])[at]


def test_weights_become_the_smallest_integers() -> None:
    assert integers({"a": 0.7, "b": "0.3"}) == {"a": 7, "b": 3}
    assert integers({"a": 2, "b": "4e0", "c": 0.5}) == {"a": 4, "b": 8, "c": 1}


def test_mixing_charges_tokens_and_a_schedule_rescales() -> None:
    def corpus(length: int) -> Corpus:
        return Corpus((((Doc((1,) * length),),),))

    plan = replace(
        PLAN,
        sources={"a": corpus(4), "b": corpus(1), "c": corpus(1)},
        entries=((0, {"a": 1, "b": 1}), (100, {"b": 3, "c": 1})),
    )
    mixer = Mixer(plan, 0, 0)
    unit = 1024 << 33  # a token's worth at half of the mixture: 1024 * (2 << 32)
    # Phases are below one mean sample, which is one token here.
    assert all(0 <= passed < unit for passed in mixer.passes.values())
    start = dict(mixer.passes)
    pulled = [mixer.pull(0)[0].source for _ in range(10)]
    assert pulled.count("a") == 2
    assert pulled.count("b") == 8
    assert mixer.passes == {"a": start["a"] + 8 * unit, "b": start["b"] + 8 * unit}
    mixer.pull(100)
    low = min(mixer.passes["a"], mixer.passes["b"])
    assert low >= 0
    # b had half of the mixture and now has three quarters: its stride is (4 << 32) // 3.
    ahead = (start["b"] - min(start.values())) * ((4 << 32) // 3) // (2 << 32)
    phase = draw(key(1, "phase", "c", 0), 0) * 1024 * (4 << 32) >> 64
    first = "b" if ahead <= ahead + phase else "c"
    charged = {"b": ahead, "c": ahead + phase}
    charged[first] += 1024 * {"b": (4 << 32) // 3, "c": 4 << 32}[first]
    assert {name: mixer.passes[name] for name in "bc"} == charged


def test_rows_say_which_labels_count_and_where_segments_start() -> None:
    packing = Packing(replace(PLAN, kind="best_fit", pool=2))
    packing.push(item("a", 4, mask=(1, 0, 1, 1)))
    packing.push(item("b", 3))
    pieces = packing.pop(last=True)
    row = make_row(replace(PLAN, pad=9), 0, pieces)
    assert row.tokens == [100, 101, 102, 103, 200, 201, 202, 9, 9, 9]
    # Token 101 is masked by its document, 200 is the first of its piece, the rest is padding.
    assert row.loss_mask == [0, 1, 1, 0, 1, 1, 0, 0, 0]
    assert row.cu_seqlens == [0, 4, 7, 9]
    across = make_row(replace(PLAN, pad=9, mask_boundary=False), 0, pieces)
    assert across.loss_mask == [0, 1, 1, 1, 1, 1, 0, 0, 0]
    assert make_row(replace(PLAN, align=4), 0, packing_row(PLAN, 5)).cu_seqlens == [0, 8, 9]
    # A document that starts at the last position has no input there.
    assert make_row(PLAN, 0, packing_row(PLAN, 9, 1)).cu_seqlens == [0, 9]


def packing_row(plan: Plan, *lengths: int) -> list:
    packing = Packing(plan)
    for number, length in enumerate(lengths):
        packing.push(item(chr(97 + number), length))
    return packing.pop(last=True)


def test_dry_lanes_and_rows_beyond_the_length_leave_digests_alone() -> None:
    corpus = Corpus((((Doc((1, 2, 3)),),),), epochs=1)
    plan = replace(PLAN, lanes=2, sources={"a": corpus}, length=4)
    oracle = Oracle(plan)
    found = list(oracle.rows(passes=1))
    assert [row.planned for row in found] == [True, False, False, False]
    assert oracle.digests[1] == bytes(16)
    assert oracle.digests[0] != bytes(16)
    assert found[1].tokens == [0] * 10
    assert found[1].loss_mask == [0] * 9
