"""The plan: all that fixes the order, as plain values, and what lanes read of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zephon.config import Config
from zephon.errors import ConfigError
from zephon.formats.index import SourceIndex
from zephon.lanes.spec import EntrySpec, LaneSpec, SourceSpec
from zephon.read_config import epochs_of, mixtures
from zephon.read_config_images import source_stage
from zephon.stages import stage_metadata, stage_plan, stage_rule
from zephon.tokenizer import tokenizer_plan

PLAN_VERSION = 1
BLOCKS_A_LANE = 32
TEXT_TOKEN_BYTES, IMAGE_TOKEN_BYTES = 4, 256


def lanes_for(config: Config, saved: int | None) -> int:
    """Return the number of lanes: the configuration's, else the state's, else the default of DESIGN 3."""
    if config.lanes is not None:
        return config.lanes
    if saved is not None:
        return saved
    if config.length is not None or config.global_batch_size is None:
        return 1
    return config.global_batch_size


def make_plan(config: Config, indices: Mapping[str, SourceIndex], lanes: int, length: int | None) -> dict[str, Any]:
    """Return the canonical plan: nested mappings, lists, strings, integers, booleans and None.

    `length` is the finite stream's, counted where the configuration says so. Raises ConfigError for a finite
    source that some lanes of an endless stream would hardly see.
    """
    sources = {}
    for name in sorted(config.sources):
        index, epochs = indices[name], epochs_of(config, name)
        if config.length is None and epochs is not None and epochs * index.num_blocks < BLOCKS_A_LANE * lanes:
            raise ConfigError(
                f"sources.{name}: {epochs} epochs of {index.num_blocks} blocks are too few for {lanes} lanes of an "
                f"endless stream (at least {BLOCKS_A_LANE * lanes} blocks, so that every lane sees its share); "
                "set a smaller block_samples, fewer lanes, or epochs: null"
            )
        sources[name] = {
            "hash": index.hash,
            "blocks": index.num_blocks,
            "samples": index.num_samples,
            "mean_tokens": mean_tokens(config, name, index),
            "epochs": epochs,
            "stage": stage_plan(source_stage(config, name), config.tokenizer),
        }
    return {
        "version": PLAN_VERSION,
        "seed": config.seed,
        "lanes": lanes,
        "sequence_length": config.sequence_length,
        "length": length,
        "restart": config.restart,
        "spread": config.spread,
        "mask_boundary": config.mask_boundary,
        "mix": {
            "by": config.mix.by,
            "entries": [{"from": start, "weights": weights} for start, weights in mixtures(config)],
        },
        "sources": sources,
        "tokenizer": None if config.tokenizer is None else tokenizer_plan(config.tokenizer),
        "pack": _pack_plan(config),
        "operators": [
            {"kind": operator.kind, "options": operator.options, "version": operator.version}
            for operator in config.operators
        ],
    }


def lane_spec(config: Config, indices: Mapping[str, SourceIndex], lanes: int) -> LaneSpec:
    """Return what the lanes read of the plan."""
    return LaneSpec(
        seed=config.seed,
        lanes=lanes,
        capacity=config.sequence_length + 1,
        sources=tuple(
            SourceSpec(
                name=name,
                num_blocks=indices[name].num_blocks,
                block_samples=indices[name].block_samples,
                mean_tokens=mean_tokens(config, name, indices[name]),
                epochs=epochs_of(config, name),
            )
            for name in sorted(config.sources)
        ),
        entries=tuple(EntrySpec(start=start, weights=weights) for start, weights in mixtures(config)),
        by_samples=config.mix.by == "samples",
        spread=config.spread,
        max_empty=config.max_empty,
        max_bad=config.max_bad_samples if config.on_bad_sample == "skip" else None,
        pack=config.pack,
        operators=config.operators,
        metadata={name: stage_metadata(source_stage(config, name)) for name in config.sources},
    )


def mean_tokens(config: Config, name: str, index: SourceIndex) -> int:
    """Return about how many tokens a sample of a source has, by its bytes: 4 a token of text, 256 one of an image."""
    if stage_rule(source_stage(config, name)) is None:
        return index.mean_tokens
    return max(1, index.mean_tokens * TEXT_TOKEN_BYTES // IMAGE_TOKEN_BYTES)


def _pack_plan(config: Config) -> dict[str, Any]:
    """Return the packing settings that decide something; `pool` doesn't where nothing waits in one."""
    pack = config.pack
    plan: dict[str, Any] = {"kind": pack.kind, "long": pack.long, "align": pack.align}
    if pack.kind not in ("concat", "pad"):
        plan["pool"] = pack.pool
    plan["homogeneous"] = pack.homogeneous
    if pack.homogeneous != "none":
        plan["max_age"] = 4 * pack.pool if pack.max_age is None else pack.max_age
    if pack.budgets:
        plan["budgets"] = dict(pack.budgets)
    return plan
