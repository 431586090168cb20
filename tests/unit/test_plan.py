"""The plan: all that fixes the order and nothing else, as plain values that survive JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from small_tokenizer import write_small_tokenizer
from streams import samples, stream

from zephon import ConfigError, Loader
from zephon.plan import PLAN_VERSION, lanes_for
from zephon.read_config import load_config


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return stream(tmp_path_factory.mktemp("stream"))


def plan_of(config: dict[str, Any]) -> dict[str, Any]:
    loader = Loader(config)
    plan = dict(loader.plan)
    loader.close()
    return plan


def test_a_plan_is_plain_and_the_same_every_time(config: dict[str, Any]) -> None:
    plan = plan_of(config)
    assert plan["version"] == PLAN_VERSION
    assert json.loads(json.dumps(plan)) == plan == plan_of(config)
    assert list(plan["sources"]) == ["code", "web"]
    assert (plan["sources"]["web"]["samples"], plan["sources"]["web"]["blocks"]) == (150, 38)


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 6},
        {"lanes": 2},
        {"sequence_length": 16},
        {"length": 9},
        {"length": 9, "restart": True},
        {"spread": 1},
        {"mask_boundary": False},
        {"mix": {"by": "samples"}},
        {"mix": {"schedule": [{"from": 9, "weights": {"web": 1}}]}},
        {"pack": {"pool": 5}},
        {"pack": {"pool": 4, "kind": "first_fit"}},
        {"pack": {"pool": 4, "long": "drop"}},
        {"pack": {"pool": 4, "align": 2}},
        {"pack": {"pool": 4, "homogeneous": "source"}},
        {"pack": {"pool": 4, "homogeneous": "source", "max_age": 3}},
        {"operators": [{"kind": "shuffle"}]},
        {"operators": [{"kind": "shuffle", "version": 2}]},
    ],
    ids=str,
)
def test_what_fixes_the_order_is_in_the_plan(config: dict[str, Any], changes: dict[str, Any]) -> None:
    assert plan_of({**config, **changes}) != plan_of(config)


@pytest.mark.parametrize(
    "changes",
    [
        {"micro_batch_size": 8},
        {"global_batch_size": 64},
        {"backend": {"kind": "threads", "workers": 3, "prefetch": 9}},
        {"engine": "process"},
        {"snapshots": 1},
        {"memory_bytes": 1},
        {"attention_mask": True},
        {"reset_position_ids": False},
        {"on_bad_sample": "skip"},
        {"max_empty": 7},
        {"spill": {"max_bytes": 9}},
        {"pack": {"pool": 4, "max_age": 3}},
        {"mix": {"by": "tokens"}},
    ],
    ids=str,
)
def test_what_does_not_is_not(config: dict[str, Any], changes: dict[str, Any]) -> None:
    assert plan_of({**config, **changes}) == plan_of(config)


def test_a_pool_that_nothing_waits_in_is_no_part_of_it(config: dict[str, Any]) -> None:
    for kind in ("concat", "pad"):
        assert plan_of({**config, "pack": {"kind": kind, "pool": 4}}) == plan_of(
            {**config, "pack": {"kind": kind, "pool": 9}}
        )


def test_paths_and_times_are_no_part_of_it_and_bytes_are(tmp_path: Path) -> None:
    here, there = (stream(tmp_path / name) for name in ("here", "there"))
    assert plan_of(here) == plan_of(there)
    grown = stream(
        tmp_path / "grown", sources={"code": samples("code", 90), "web": [*samples("web", 150), *samples("more", 4)]}
    )
    assert plan_of(grown)["sources"]["code"] == plan_of(here)["sources"]["code"]
    assert plan_of(grown)["sources"]["web"]["hash"] != plan_of(here)["sources"]["web"]["hash"]


def test_the_tokenizer_is_part_of_it_by_its_content(tmp_path: Path) -> None:
    config = stream(tmp_path)
    plans = []
    for name, size in (("a", 400), ("b", 400), ("c", 380)):
        (tmp_path / name).mkdir()
        path = write_small_tokenizer(tmp_path / name, vocab_size=size)
        plans.append(plan_of({**config, "tokenizer": {"path": str(path), "eos": "<|endoftext|>"}}))
    assert plans[0] == plans[1]
    assert plans[0] != plans[2]


def test_a_finite_source_that_some_lanes_would_hardly_see_is_refused(config: dict[str, Any]) -> None:
    sources = {**config["sources"], "code": {**config["sources"]["code"], "epochs": 5}}
    with pytest.raises(
        ConfigError,
        match=r"^sources.code: 5 epochs of 24 blocks are too few for 4 lanes .*at least 128 .*block_samples",
    ):
        plan_of({**config, "sources": sources})
    for enough in ({"lanes": 3}, {"length": 100}, {"length": "count"}):
        assert plan_of({**config, "sources": sources, **enough})["sources"]["code"]["epochs"] == 5


def test_lanes_for(config: dict[str, Any]) -> None:
    unset = {name: value for name, value in config.items() if name != "lanes"}
    cases: list[tuple[dict[str, Any], int | None, int]] = [
        (config, None, 4),
        (config, 9, 4),
        ({**unset, "global_batch_size": 6}, None, 6),
        ({**unset, "global_batch_size": 6}, 9, 9),
        ({**unset, "global_batch_size": 6, "length": 5}, None, 1),
        ({**unset, "length": 5}, None, 1),
        ({**unset, "length": 5}, 9, 9),
    ]
    for settings, saved, lanes in cases:
        assert lanes_for(load_config(settings), saved) == lanes
