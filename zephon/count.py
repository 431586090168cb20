"""How long a finite stream is: measured once, kept with the index."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from xxhash import xxh3_64_digest

from zephon.backends.protocol import Backend
from zephon.config import Config
from zephon.engine.lengths import LengthFeed, Lengths
from zephon.engine.setup import open_backend, open_indices
from zephon.errors import DataError
from zephon.formats.folders import cache_folder
from zephon.formats.index import SourceIndex
from zephon.lanes.lane import Lane
from zephon.page import Order
from zephon.plan import lane_spec, lanes_for, make_plan
from zephon.progress import bar
from zephon.read_config import ConfigLike, load_config
from zephon.stores.select import store_for

# Blocks under way at a time while a source is measured.
OUTSTANDING = 16
CHECK_BYTES = 8

Stored = TypeVar("Stored")


class Counted(msgspec.Struct, frozen=True, array_like=True):
    """The sequences of a finite stream, and how many of them hold documents: the rest are of lanes that ran dry."""

    rows: int
    filled: int


def count_sequences(config: ConfigLike, *, progress: bool = False) -> int:
    """Return the number of sequences of one pass over the sources, each with its epochs (1 where none are set).

    Every sample is read and tokenized once; its lengths are kept with the index, so that later counts, also
    with other packing, are quick. Raises what reading raises.
    """
    config = msgspec.structs.replace(load_config(config), length="count")
    indices = open_indices(config, progress=progress)
    return count_with(config, indices, lanes_for(config, None), progress=progress).rows


def count_with(config: Config, indices: Mapping[str, SourceIndex], lanes: int, *, progress: bool = False) -> Counted:
    """Return what `count_sequences` counts, for a configuration whose indices are open; see there."""
    plan = make_plan(config, indices, lanes, None)
    shards = {name: shard_stats(index) for name, index in indices.items()}
    cached = _path(config, {"count": plan, "shards": shards, "version": 3})
    counted = _read(cached, Counted)
    if counted is None:
        lengths = _all_lengths(config, indices, plan, shards, progress=progress)
        counted = _simulate(config, indices, lanes, lengths)
        _write(cached, counted)
    if counted.rows == 0:
        raise DataError("length=count: the sources give no sequence at all; check their stages and filters")
    return counted


def _simulate(
    config: Config, indices: Mapping[str, SourceIndex], lanes: int, lengths: Mapping[str, list[Lengths]]
) -> Counted:
    """Return the smallest M such that no lane has a row beyond M, and how many rows the lanes have."""
    spec = lane_spec(config, indices, lanes)
    feed = LengthFeed(spec, lengths, skip_bad=config.on_bad_sample == "skip")
    length = filled = 0
    for number in range(lanes):
        lane = Lane(spec, number, feed)
        while lane.next() is not None:
            # The lane returns to its last state when it runs dry, so it has to know it.
            lane.state()
        filled += lane.sequences
        if lane.sequences:
            length = max(length, number + lanes * (lane.sequences - 1) + 1)
    return Counted(length, filled)


def _all_lengths(
    config: Config,
    indices: Mapping[str, SourceIndex],
    plan: Mapping[str, Any],
    shards: Mapping[str, list[tuple[int, int]]],
    *,
    progress: bool,
) -> dict[str, list[Lengths]]:
    found: dict[str, list[Lengths]] = {}
    backend: Backend | None = None
    try:
        for name in sorted(indices):
            source = plan["sources"][name]
            # The seed and the name matter to stages that draw, and these may draw other lengths in each epoch.
            parts = {"source": source["hash"], "stage": source["stage"], "tokenizer": plan["tokenizer"]}
            parts |= {"seed": config.seed, "name": name, "shards": shards[name], "version": 2}
            found[name] = []
            for epoch in range(source["epochs"] if draws(source["stage"]) else 1):
                path = _path(config, {"lengths": parts, "epoch": epoch})
                record = _read(path, _Stored)
                if record is None:
                    backend = backend or open_backend(config)
                    record = _Stored.of(measure(backend, indices[name], name, epoch=epoch, progress=progress))
                    _write(path, record)
                found[name].append(record.lengths())
    finally:
        if backend is not None:
            backend.close()
    return found


def shard_stats(index: SourceIndex) -> list[tuple[int, int]]:
    """Return each shard's size and time of change: two sources may share a block table and hold other data."""
    stats = [store_for(shard).stat(shard) for shard in index.shards]
    return [(stat.size, stat.mtime_ns) for stat in stats]


def draws(stage: Mapping[str, Any]) -> bool:
    """Return whether a stage's documents may be others in another epoch."""
    return stage["kind"] not in ("text", "tokens", "chat", "image_text", "interleaved") or bool(stage.get("fim"))


def measure(backend: Backend, index: SourceIndex, name: str, *, epoch: int = 0, progress: bool = False) -> Lengths:
    """Return the lengths of all of a source's documents in an epoch; every sample is read and prepared."""
    counts, lengths, metas, bad = [], [], [], {}
    waiting: deque[int] = deque()
    submitted = first = 0
    with bar(f"measuring {name}", index.num_blocks, shown=progress) as advance:
        for _ in range(index.num_blocks):
            while submitted < index.num_blocks and len(waiting) < OUTSTANDING:
                samples = tuple(range(index.samples_in(submitted)))
                waiting.append(backend.submit(Order(name, epoch, submitted, index.location(submitted), samples)))
                submitted += 1
            page = backend.take(waiting.popleft())
            counts.append(page.counts)
            lengths.append(np.diff(page.offsets))
            if page.meta is not None:
                metas.append(page.meta)
            bad.update({first + place: message for place, message in page.bad})
            first += len(page.counts)
            advance()
    return Lengths(np.concatenate(counts), np.concatenate(lengths), np.concatenate(metas) if metas else None, bad)


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    counts: bytes
    tokens: bytes
    meta: bytes
    num_meta: int
    bad: dict[int, str]

    @classmethod
    def of(cls, lengths: Lengths) -> _Stored:
        meta = lengths.meta
        return cls(
            lengths.counts.astype("<i4").tobytes(),
            lengths.lengths.astype("<i8").tobytes(),
            b"" if meta is None else meta.astype("<i8").tobytes(),
            0 if meta is None else meta.shape[1],
            lengths.bad,
        )

    def lengths(self) -> Lengths:
        """Return the arrays."""
        meta = np.frombuffer(self.meta, "<i8").reshape(-1, self.num_meta) if self.num_meta else None
        return Lengths(np.frombuffer(self.counts, "<i4"), np.frombuffer(self.tokens, "<i8"), meta, self.bad)


def _path(config: Config, parts: Mapping[str, Any]) -> Path | None:
    folder = cache_folder(config.index_dir)
    name = blake2b(msgspec.json.encode(parts, order="deterministic"), digest_size=16).hexdigest()
    return None if folder is None else folder / f"{name}.zephon-count"


def _read(path: Path | None, kind: type[Stored]) -> Stored | None:
    """Return what a file of the cache holds; None where there is none or it is damaged."""
    try:
        raw = b"" if path is None else path.read_bytes()
        # A length is part of the plan: one flipped bit would be another stream.
        return msgspec.msgpack.decode(raw[CHECK_BYTES:], type=kind) if _checked(raw) else None
    except (OSError, msgspec.MsgspecError):
        return None


def _checked(raw: bytes) -> bool:
    return xxh3_64_digest(raw[CHECK_BYTES:]) == raw[:CHECK_BYTES]


def _write(path: Path | None, value: Any) -> None:
    """Keep a value, if the cache can be written: without it, it is only counted again."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
            body = msgspec.msgpack.encode(value)
            file.write(xxh3_64_digest(body) + body)
        Path(file.name).replace(path)
    except OSError:
        return
