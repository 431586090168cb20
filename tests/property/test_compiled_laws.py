"""A compiled lane plans what Lane does: the same rows, tokens, masks, states and errors, from any state on."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracle_plan import Corpus, Doc, Plan
from plan_pages import PlanPages, feed_of_plan, lane_spec_of
from plans import Case, cases
from profiles import examples

from zephon.engine.assemble import Assembler
from zephon.engine.engine import unread, with_payloads
from zephon.engine.feed import PageFeed
from zephon.errors import DataError, StateError
from zephon.item import Item
from zephon.lanes import compiled
from zephon.lanes.compiled import CompiledLane, can_compile, make_lane
from zephon.lanes.lane import Lane
from zephon.lanes.mixer import Pulled
from zephon.lanes.spec import LaneSpec
from zephon.lanes.state import HeldState, LaneState, SourceState
from zephon.state.lane_codec import decode_lane, encode_lane

ROWS = 12
DIGEST = bytes(16)

pytestmark = pytest.mark.skipif(compiled.native is None, reason="zephon.native isn't compiled")


class Side:
    """One of the two lanes, with what it was fed from and what it gave."""

    def __init__(self, kind: Any, spec: LaneSpec, lane: int, feed: PageFeed, state: LaneState) -> None:
        self.feed, self.pulled = feed, Pulled()
        state = with_payloads(state, feed)
        if kind is CompiledLane:
            made = make_lane(spec, lane, feed, state=state, pulled=self.pulled)
            assert isinstance(made, CompiledLane)
            self.lane: Any = made
        else:
            self.lane = Lane(spec, lane, feed, state=state, pulled=self.pulled)

    def row(self, capacity: int) -> Any:
        """Return the next row as plain values, and the lane's encoded state after it."""
        try:
            row = self.lane.next()
        except DataError as error:
            return str(error)
        state = encode_lane(self.state())
        if row is None:
            return None, state, dict(self.pulled)
        missing = unread(row)
        for item in missing:
            if not item.payload.ordered:
                item.payload.ordered = True
                self.feed.fill(self.feed.order_again(item.source, item.q, [item.sample]), [item])
        assembler = Assembler(1, capacity, 3)
        digest = assembler.add(0, row)
        host = assembler.finish()
        mask = None if host.mask is None else host.mask.tolist()
        counts = (assembler.tokens, assembler.documents, dict(assembler.delivered), dict(self.pulled))
        return digest, host.tokens.tolist(), host.pieces.tolist(), mask, counts, state

    def state(self) -> LaneState:
        state = self.lane.state().sealed(DIGEST)
        return state if isinstance(state, LaneState) else state.lane_state()


def both(plan: Plan, lane: int, state: LaneState, **sizes: int) -> tuple[Side, Side]:
    spec = lane_spec_of(plan)
    assume(can_compile(spec, state.pass_number))
    plain = Side(Lane, spec, lane, feed_of_plan(plan, spec, **sizes), state)
    return plain, Side(CompiledLane, spec, lane, feed_of_plan(plan, spec, **sizes), state)


@settings(max_examples=examples(300))
@given(
    case=cases(epochs=True),
    split=st.booleans(),
    lane=st.integers(0, 11),
    number=st.integers(0, 3),
    sizes=st.tuples(
        st.integers(1, 9), st.integers(0, 2), st.sampled_from([0, 300, 1 << 30]), st.sampled_from([0, 2, 3])
    ),
    stops=st.lists(st.booleans(), min_size=ROWS, max_size=ROWS),
)
def test_compiled_and_plain_lanes_plan_the_same(
    case: Case, split: bool, lane: int, number: int, sizes: tuple[int, int, int, int], stops: list[bool]
) -> None:
    plan = replace(case.plan, kind="best_fit_split" if split else "best_fit")
    page, ahead, limit_bytes, bad = sizes
    options = {"page": page, "ahead": ahead, "limit_bytes": limit_bytes, "bad": bad}
    lane %= plan.lanes
    plain, fast = both(plan, lane, LaneState(pass_number=number), **options)
    for stop in stops:
        want, found = plain.row(plan.capacity), fast.row(plan.capacity)
        assert found == want
        if isinstance(want, str):
            return
        if stop:
            saved = decode_lane(encode_lane(fast.state()))
            for side in (plain, fast):
                side.lane.close()
            plain, fast = both(plan, lane, saved, **options)
    for side in (plain, fast):
        side.lane.close()
        backend = side.feed.backend
        assert isinstance(backend, PlanPages)
        assert not backend.outstanding


def test_memory_is_given_back() -> None:
    plan = small_plan()
    spec = lane_spec_of(plan)
    feed = feed_of_plan(plan, spec, page=4, ahead=1, limit_bytes=1 << 30, bad=0)
    side = Side(CompiledLane, spec, 0, feed, LaneState())
    for _ in range(20):
        side.row(plan.capacity)
    assert feed.memory.held > 0
    side.lane.close()
    del side
    assert feed.memory.held == 0


def test_lanes_that_nobody_closed_can_be_collected() -> None:
    plan = small_plan()
    spec = lane_spec_of(plan)
    feed = feed_of_plan(plan, spec, page=4, ahead=1, limit_bytes=1 << 30, bad=0)
    sides = [Side(CompiledLane, spec, 0, feed, LaneState()) for _ in range(3)]
    rows = [side.lane.next() for side in sides]
    del sides
    gc.collect()
    assert feed.memory.held > 0
    del rows
    gc.collect()
    assert feed.memory.held == 0


@pytest.mark.parametrize(
    "fault",
    [
        {"counts": np.array([1], np.int32)},
        {"counts": np.array([9, 9], np.int32)},
        {"offsets": np.array([0, 99, 200], np.int64)},
        {"offsets": np.array([0, 5, 3], np.int64)},
    ],
    ids=["a count too few", "more documents than offsets", "beyond the tokens", "falling offsets"],
)
def test_a_page_that_contradicts_itself_is_refused(fault: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    plan = small_plan()
    spec = lane_spec_of(plan)
    feed = feed_of_plan(plan, spec, page=2, ahead=0, limit_bytes=1 << 30, bad=0)
    take = feed.backend.take

    def torn(ticket: int) -> Any:
        page = take(ticket)
        for name, value in fault.items():
            setattr(page, name, value)
        return page

    monkeypatch.setattr(feed.backend, "take", torn)
    lane = make_lane(spec, 0, feed, state=LaneState(), pulled=Pulled())
    with pytest.raises(IndexError, match=r"a page|a document"):
        list(iter(lane.next, None))


@pytest.mark.parametrize(
    "change",
    [{"kind": "concat"}, {"homogeneous": "source"}, {"pool": compiled.MAX_POOL + 1}, {"budgets": {"cost": 3}}],
    ids=lambda change: next(iter(change)),
)
def test_other_packers_are_planned_in_python(change: dict[str, Any]) -> None:
    spec = lane_spec_of(small_plan())
    assert can_compile(spec, 0)
    assert not can_compile(msgspec.structs.replace(spec, pack=msgspec.structs.replace(spec.pack, **change)), 0)


def test_ordinals_beyond_64_bits_are_planned_in_python() -> None:
    spec = lane_spec_of(small_plan())
    assert can_compile(spec, 1 << 20)
    assert not can_compile(spec, 1 << 40)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"entry": 1}, "mixture entry 1 of 1"),
        ({"sources": (SourceState("books", 0, (0, 1, 0, 0)),)}, "sources books"),
        ({"held": Item("web", 0, 1, 0, 5, 5)}, r"a document of 5 tokens that goes on at 5 \(source web\)"),
        ({"held": Item("wiki", 0, 1, 0, 0, 5)}, "sources wiki"),
    ],
    ids=["entry", "source", "start", "held source"],
)
def test_a_state_that_can_t_be_the_plan_s_is_refused(
    change: dict[str, Any], what: str, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        monkeypatch.setattr(compiled, "native", None)
    plan = small_plan()
    spec = lane_spec_of(plan)
    feed = feed_of_plan(plan, spec, page=4, ahead=1, limit_bytes=1 << 30, bad=0)
    held = change.get("held")
    parts = {name: value for name, value in change.items() if name != "held"}
    state = LaneState(**parts, operators=() if held is None else (HeldState({}, (held,)),))
    with pytest.raises(StateError, match=f"^lane 0: its state has {what}; load the state as it was saved"):
        make_lane(spec, 0, feed, state=state, pulled=Pulled())


def test_numbers_beyond_64_bits_are_planned_in_python() -> None:
    plan = small_plan()
    spec = lane_spec_of(plan)
    feed = feed_of_plan(plan, spec, page=4, ahead=1, limit_bytes=1 << 30, bad=0)
    for pulls, kind in ((1 << 30, CompiledLane), (1 << 70, Lane)):
        sources = (SourceState("web", 0, (4, pulls, 0, 0, 3, 1, 9)),)
        assert type(make_lane(spec, 0, feed, state=LaneState(sources=sources), pulled=Pulled())) is kind


def small_plan() -> Plan:
    blocks = tuple(tuple((Doc(tokens=tuple(range(1, 2 + (b + s) % 7))),) for s in range(4)) for b in range(5))
    return Plan(
        seed=3,
        lanes=1,
        sequence_length=16,
        sources={"web": Corpus(blocks=blocks, mean_tokens=4)},
        entries=((0, {"web": "1"}),),
        pool=4,
    )
