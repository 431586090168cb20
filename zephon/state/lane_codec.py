"""A lane's state as bytes: versioned, checked, 6 bytes a held document plus 8 a block. See docs/state-format.md."""

from __future__ import annotations

from zlib import crc32

from zephon.errors import StateError
from zephon.item import Item
from zephon.lanes.state import DIGEST_BYTES, HeldState, LaneState, SourceState
from zephon.state.varint import Reader, Writer

LANE_VERSION = 1
HASH_BYTES = 8
HAS_PART, HAS_START, HAS_META, FLAG_BITS = 1, 2, 4, 3


def encode_lane(state: LaneState) -> bytes:
    """Return a lane's state as bytes; equal states give equal bytes on every rank."""
    out = Writer()
    out.number(LANE_VERSION)
    out.number(state.pass_number)
    out.number(state.sequences)
    out.number(state.entry)
    out.raw(state.digest)
    # Only differences of passes decide anything, so the lowest is written as 0.
    low = min((s.passed for s in state.sources if s.passed is not None and s.open), default=0)
    out.number(len(state.sources))
    for source in state.sources:
        _write_source(out, source, low)
    out.number(len(state.operators))
    for operator in state.operators:
        _write_held(out, operator)
    out.raw(crc32(out.buffer).to_bytes(4, "little"))
    return bytes(out.buffer)


def decode_lane(data: bytes, *, place: str = "lane") -> LaneState:
    """Return the lane's state that `encode_lane` wrote.

    Raises StateError, naming `place`, where the bytes are cut short, damaged or of another version.
    """
    if not isinstance(data, bytes) or len(data) < 4:
        raise StateError(f"{place}: its state isn't bytes of a lane; load the whole state as it was saved")
    body, check = data[:-4], data[-4:]
    if crc32(body).to_bytes(4, "little") != check:
        raise StateError(
            f"{place}: its {len(data)} bytes of state are damaged or cut short; load an earlier checkpoint"
        )
    reader = Reader(body)
    version = reader.number()
    if version != LANE_VERSION:
        raise StateError(
            f"{place}: state of version {version}, this release reads {LANE_VERSION}; use the release that wrote it"
        )
    try:
        pass_number, sequences, entry = reader.number(), reader.number(), reader.number()
        digest = reader.raw(DIGEST_BYTES)
        sources = tuple([_read_source(reader) for _ in range(reader.number())])
        operators = tuple([_read_held(reader) for _ in range(reader.number())])
    except (StateError, IndexError, UnicodeDecodeError) as error:
        raise StateError(f"{place}: its state can't be read ({error}); load an earlier checkpoint") from error
    if reader.left:
        raise StateError(f"{place}: {reader.left} bytes too many in its state; load an earlier checkpoint")
    return LaneState(pass_number, sequences, entry, sources, operators, digest)


def _write_source(out: Writer, source: SourceState, low: int) -> None:
    out.text(source.name)
    if source.passed is None:
        out.number(0)
    else:
        out.number(1 + (source.passed - low if source.open else 0))
    for number in (source.next_k, source.pulls, source.bad, source.empty, len(source.open)):
        out.number(number)
    for k, taken, block_hash in source.open:
        out.number(source.next_k - k)
        out.number(taken)
        if taken:
            out.raw(block_hash.to_bytes(HASH_BYTES, "little"))


def _read_source(reader: Reader) -> SourceState:
    name = reader.text()
    passed = reader.number()
    next_k, pulls, bad, empty, num_open = (reader.number() for _ in range(5))
    numbers = [next_k, pulls, bad, empty]
    for _ in range(num_open):
        k, taken = next_k - reader.number(), reader.number()
        numbers += (k, taken, int.from_bytes(reader.raw(HASH_BYTES), "little") if taken else 0)
    return SourceState(name, passed - 1 if passed else None, tuple(numbers))


def _write_held(out: Writer, operator: HeldState) -> None:
    out.number(len(operator.state))
    for name, value in operator.state.items():
        out.text(name)
        numbers = value if isinstance(value, tuple) else (value,)
        out.number(len(numbers) + 1 if isinstance(value, tuple) else 0)
        for number in numbers:
            out.signed(number)
    names: dict[str, int] = {}
    blocks: dict[tuple[str, int], int] = {}
    for item in operator.held:
        names.setdefault(item.source, len(names))
        blocks.setdefault((item.source, item.q), item.block_hash)
    out.number(len(names))
    for name in names:
        out.text(name)
    out.number(len(blocks))
    # Blocks of a source lie near each other, so each is written as its distance to the one before.
    last = dict.fromkeys(names, 0)
    for (name, q), block_hash in blocks.items():
        out.number(names[name])
        out.signed(q - last[name])
        out.raw(block_hash.to_bytes(HASH_BYTES, "little"))
        last[name] = q
    places = {block: place for place, block in enumerate(blocks)}
    out.number(len(operator.held))
    for item in operator.held:
        flags = HAS_PART * (item.part > 0) | HAS_START * (item.start > 0) | HAS_META * bool(item.meta)
        out.number(places[item.source, item.q] << FLAG_BITS | flags)
        out.number(item.sample)
        out.number(item.length)
        if flags & HAS_PART:
            out.number(item.part)
        if flags & HAS_START:
            out.number(item.start)
        if flags & HAS_META:
            out.number(len(item.meta))
            for number in item.meta:
                out.signed(number)


def _read_held(reader: Reader) -> HeldState:
    state: dict[str, int | tuple[int, ...]] = {}
    for _ in range(reader.number()):
        name, count = reader.text(), reader.number()
        state[name] = tuple([reader.signed() for _ in range(count - 1)]) if count else reader.signed()
    names = [reader.text() for _ in range(reader.number())]
    last = dict.fromkeys(names, 0)
    blocks = []
    for _ in range(reader.number()):
        name = names[reader.number()]
        last[name] += reader.signed()
        blocks.append((name, last[name], int.from_bytes(reader.raw(HASH_BYTES), "little")))
    held = tuple([_read_item(reader, blocks) for _ in range(reader.number())])
    return HeldState(state, held)


def _read_item(reader: Reader, blocks: list[tuple[str, int, int]]) -> Item:
    head, sample, length = reader.number(), reader.number(), reader.number()
    part = reader.number() if head & HAS_PART else 0
    start = reader.number() if head & HAS_START else 0
    meta = tuple([reader.signed() for _ in range(reader.number())]) if head & HAS_META else ()
    source, q, block_hash = blocks[head >> FLAG_BITS]
    return Item(source, q, sample, part, start, length, meta, block_hash)
