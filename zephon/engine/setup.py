"""Everything a session is made from, and the engine made from it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Literal

import msgspec

from zephon.backends.protocol import Backend
from zephon.config import Config
from zephon.engine.appetite import appetite
from zephon.engine.engine import Engine
from zephon.engine.feed import PageFeed
from zephon.engine.materialise import Materialiser
from zephon.formats.index import SourceIndex, build_index
from zephon.formats.spill import choose_spilled
from zephon.lanes.spec import LaneSpec
from zephon.lanes.state import LaneState
from zephon.plan import lane_spec
from zephon.read_config_images import resize_rule
from zephon.read_config_paths import check_path
from zephon.registry import BACKENDS, resolve
from zephon.stages import stage_config, stage_fields
from zephon.stages.prepare import PrepareSpec, build_prepare
from zephon.state.lane_codec import encode_lane
from zephon.topology import Topology, lanes_of

# Micro-batches made ahead. Fewer than 8, and a quick trainer and the engine wait for each other; images take memory.
PREFETCH = 8
PREFETCH_IMAGES = 2
# Rows planned before they are made: enough that documents read again after a resume are under way.
PLAN_AHEAD = 8


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's session from a position on, as plain values: it can be sent to an engine process.

    `length` is the finite stream's number of sequences; `lanes` holds the encoded states of the rank's
    lanes at `consumed`, which may be empty at the start.
    """

    config: Config
    topology: Topology
    num_lanes: int
    length: int | None
    pad_id: int
    consumed: int
    lanes: dict[int, bytes]

    def starting_lanes(self) -> dict[int, bytes]:
        """Return the rank's lanes at `consumed`, encoded, those not begun included."""
        fresh = encode_lane(LaneState())
        return {lane: self.lanes.get(lane, fresh) for lane in lanes_of(self.topology, self.num_lanes)}


def prefetch(config: Config) -> int:
    """Return how many micro-batches are made ahead of the trainer."""
    if config.backend.prefetch is not None:
        return config.backend.prefetch
    return PREFETCH if resize_rule(config) is None else PREFETCH_IMAGES


def open_indices(config: Config, *, progress: bool = False) -> dict[str, SourceIndex]:
    """Return the index of each source, built where it isn't cached."""
    on_truncated: Literal["raise", "skip"] = "skip" if config.on_bad_sample == "skip" else "raise"
    indices = {
        name: build_index(
            name, config.sources[name], index_dir=config.index_dir, on_truncated=on_truncated, progress=progress
        )
        for name in sorted(config.sources)
    }
    for name, index in indices.items():
        for shard in index.shards:
            check_path(config, shard, place=f"sources.{name}.path")
    columns = {
        name: stage_fields(stage_config(source.stage, place=f"sources.{name}.stage"))
        for name, source in config.sources.items()
    }
    return choose_spilled(indices, config.spill, index_dir=config.index_dir, columns=columns)


def open_backend(config: Config) -> Backend:
    """Return the backend that the configuration names, its workers starting."""
    spec = PrepareSpec(
        seed=config.seed,
        tokenizer=config.tokenizer,
        sources=config.sources,
        spill=config.spill,
        index_dir=config.index_dir,
        capacity=config.sequence_length + 1,
        long=config.pack.long,
    )
    kind = resolve(BACKENDS, config.backend.kind, place="backend.kind")
    backend: Backend = kind(partial(build_prepare, spec), workers=config.backend.workers)
    return backend


def make_engine(
    setup: Setup,
    indices: Mapping[str, SourceIndex],
    backend: Backend,
    *,
    position: int,
    states: Mapping[int, LaneState],
) -> Engine:
    """Return the engine of one pass, from `position` in it on."""
    config = setup.config
    spec: LaneSpec = lane_spec(config, indices, setup.num_lanes)
    workers = 1 if config.backend.kind == "inline" else config.backend.workers
    feed = PageFeed(
        spec,
        indices,
        backend,
        appetite=appetite(
            num_lanes=len(lanes_of(setup.topology, setup.num_lanes)),
            spread=config.spread,
            workers=workers,
            mean_tokens={source.name: source.mean_tokens for source in spec.sources},
            pages_bytes=config.memory_bytes // 2,
        ),
        skip_bad=config.on_bad_sample == "skip",
        limit_bytes=config.memory_bytes,
    )
    materialiser = None
    plan_ahead = PLAN_AHEAD
    if resize_rule(config) is not None:
        materialiser = Materialiser(feed, limit_bytes=config.memory_bytes // 4)
        plan_ahead = max(PLAN_AHEAD, 4 * workers)
    return Engine(
        spec,
        feed,
        setup.topology,
        micro_batch_size=config.micro_batch_size,
        pad_id=setup.pad_id,
        position=position,
        length=setup.length,
        states=states,
        plan_ahead=plan_ahead,
        materialiser=materialiser,
    )


def encode_setup(setup: Setup) -> bytes:
    """Return a setup as bytes for `decode_setup`."""
    return msgspec.msgpack.encode(setup)


def decode_setup(data: bytes) -> Setup:
    """Return the setup in the bytes."""
    return msgspec.msgpack.decode(data, type=Setup)
