"""A lane's state as bytes: what goes in comes out, and no damaged byte passes."""

from __future__ import annotations

from contextlib import suppress
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lane_states import source_state
from msgspec.structs import replace

from zephon.errors import StateError
from zephon.item import Item
from zephon.lanes.state import HeldState, LaneState, SourceState
from zephon.state import decode_lane, encode_lane
from zephon.state.varint import Reader, Writer

NUMBER = st.one_of(st.integers(0, 200), st.integers(0, 1 << 70))
SIGNED = st.integers(-(1 << 65), 1 << 65)
NAME = st.text(max_size=6)
HASH = st.integers(0, (1 << 64) - 1)


@st.composite
def sources(draw: st.DrawFn, name: str) -> SourceState:
    next_k = draw(NUMBER)
    blocks = []
    for _ in range(draw(st.integers(0, 4))):
        taken = draw(st.integers(0, 300))
        blocks.append((next_k - draw(st.integers(0, next_k)), taken, draw(HASH) if taken else 0))
    passed, pulls, empty, bad = draw(st.none() | NUMBER), draw(NUMBER), draw(NUMBER), draw(NUMBER)
    return source_state(name, passed, next_k=next_k, pulls=pulls, empty=empty, bad=bad, blocks=tuple(blocks))


@st.composite
def operators(draw: st.DrawFn) -> HeldState:
    state = draw(st.dictionaries(NAME, SIGNED | st.lists(SIGNED, max_size=3).map(tuple), max_size=3))
    blocks = draw(st.lists(st.tuples(NAME, NUMBER, HASH), max_size=4, unique_by=lambda block: block[:2]))
    held = []
    for source, q, block_hash in draw(st.lists(st.sampled_from(blocks), max_size=8)) if blocks else []:
        meta = tuple(draw(st.lists(SIGNED, max_size=2)))
        small = st.integers(0, 1 << 34)
        held.append(Item(source, q, draw(small), draw(small), draw(small), draw(small), meta, block_hash))
    return HeldState(state, tuple(held))


LANES = st.lists(NAME, max_size=3, unique=True).flatmap(
    lambda names: st.builds(
        LaneState,
        NUMBER,
        NUMBER,
        NUMBER,
        st.tuples(*map(sources, names)),
        st.lists(operators(), max_size=3).map(tuple),
        st.binary(min_size=16, max_size=16),
    )
)


def lowered(state: LaneState) -> LaneState:
    """Return the same state with the lowest pass at 0, and at 0 that of used-up sources."""
    low = min((s.passed for s in state.sources if s.passed is not None and s.open), default=0)
    return replace(
        state,
        sources=tuple(
            replace(s, passed=None if s.passed is None else (s.passed - low if s.open else 0)) for s in state.sources
        ),
    )


@given(state=LANES)
def test_what_is_encoded_is_decoded(state: LaneState) -> None:
    data = encode_lane(state)
    assert decode_lane(data) == lowered(state)
    assert encode_lane(decode_lane(data)) == data


WEB = source_state("web", 900, next_k=5, pulls=11, empty=2, bad=1, blocks=((3, 4, 1 << 63), (4, 0, 0)))
OFF = source_state("aus", None, next_k=2, pulls=7, blocks=((1, 1, 77),))
HELD = HeldState(
    {"count": 7, "ages": (3, 0, -1), "none": ()},
    (
        Item("web", 3, 1, 0, 0, 30, (), 1 << 63),
        Item("web", 3, 2, 1, 500, 3000, (1, -2), 1 << 63),
        Item("aus", 1, 0, 0, 0, 1, (), 77),
    ),
)
STATE = LaneState(2, 300, 1, (OFF, WEB), (HeldState({}, ()), HELD), bytes(range(16)))


def test_states_without_anything_are_small() -> None:
    assert decode_lane(encode_lane(LaneState())) == LaneState()
    assert len(encode_lane(LaneState())) < 30


def test_only_differences_of_passes_are_kept() -> None:
    further = replace(STATE, sources=tuple(replace(s, passed=s.passed and s.passed + 1000) for s in STATE.sources))
    assert encode_lane(further) == encode_lane(STATE)


def test_a_held_document_costs_six_bytes_or_so() -> None:
    def held(count: int) -> LaneState:
        items = tuple(Item("web", 900 + i % 4, i, 0, 0, 400 + i, (), 5 + i % 4) for i in range(count))
        return replace(STATE, operators=(HeldState({}, items),))

    assert len(encode_lane(held(64))) - len(encode_lane(held(32))) <= 6 * 32


def test_every_flipped_byte_is_noticed() -> None:
    data = encode_lane(STATE)
    for place in range(len(data)):
        for flip in (1, 0x80, 0xFF):
            damaged = bytearray(data)
            damaged[place] ^= flip
            with pytest.raises(StateError, match=r"^lane 3: .*load an earlier checkpoint$"):
                decode_lane(bytes(damaged), place="lane 3")


def test_every_cut_and_every_addition_is_noticed() -> None:
    data = encode_lane(STATE)
    for size in range(len(data)):
        with pytest.raises(StateError, match=r"^lane 3: .*; load "):
            decode_lane(data[:size], place="lane 3")
    for more in (b"\0", data):
        with pytest.raises(StateError, match="damaged or cut short"):
            decode_lane(data + more)


def test_bytes_that_pass_the_checksum_and_are_no_state_are_refused() -> None:
    """A writer's bug, or ill will: never an exception of another kind, whatever the byte."""
    body = encode_lane(STATE)[:-4]
    for place in range(len(body)):
        for value in (0, 0x7F, 0xFF, body[place] ^ 1):
            changed = body[:place] + bytes([value]) + body[place + 1 :]
            with suppress(StateError):
                decode_lane(changed + crc32(changed).to_bytes(4, "little"))
    for size in range(1, len(body)):
        cut = body[:size]
        with pytest.raises(StateError):
            decode_lane(cut + crc32(cut).to_bytes(4, "little"))


def test_bytes_left_over_are_refused() -> None:
    body = encode_lane(STATE)[:-4] + b"\0\0"
    with pytest.raises(StateError, match="2 bytes too many"):
        decode_lane(body + crc32(body).to_bytes(4, "little"))


def test_another_version_is_refused_with_the_remedy() -> None:
    body = b"\x02" + encode_lane(STATE)[1:-4]
    with pytest.raises(StateError, match="state of version 2, this release reads 1; use the release that wrote it"):
        decode_lane(body + crc32(body).to_bytes(4, "little"))


@pytest.mark.parametrize("value", [None, "bytes", 7, bytearray(30), b"", b"abc"])
def test_what_is_no_bytes_of_a_lane_is_refused(value: object) -> None:
    with pytest.raises(StateError, match="isn't bytes of a lane; load the whole state as it was saved"):
        decode_lane(value)  # type: ignore[arg-type]


@given(number=NUMBER, signed=SIGNED, text=st.text(), raw=st.binary())
def test_numbers_texts_and_bytes_come_back(number: int, signed: int, text: str, raw: bytes) -> None:
    out = Writer()
    out.number(number)
    out.signed(signed)
    out.text(text)
    out.raw(raw)
    reader = Reader(bytes(out.buffer))
    assert (reader.number(), reader.signed(), reader.text(), reader.raw(len(raw))) == (number, signed, text, raw)
    assert reader.left == 0
