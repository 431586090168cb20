from __future__ import annotations

from zephon import load_config
from zephon.cli.overlap import overlap
from zephon.config import Config


def config(**changes: object) -> Config:
    return load_config({"lanes": 12, "sequence_length": 8, "sources": {"web": {"path": "web.jsonl"}}, **changes})


def test_too_few_blocks_of_an_endless_source_are_worth_a_line() -> None:
    assert overlap(config(), "web", 12, 12) == (
        "sources.web: 12 blocks for 12 lanes × spread 4: epochs overlap; a smaller block_samples helps"
    )
    assert overlap(config(), "web", 47, 12) is not None
    assert overlap(config(), "web", 48, 12) is None
    assert overlap(config(spread=1), "web", 12, 12) is None


def test_sources_that_end_are_not_said_to_overlap() -> None:
    assert overlap(config(length="count"), "web", 1, 12) is None
    assert overlap(config(sources={"web": {"path": "web.jsonl", "epochs": 2}}), "web", 1, 12) is None
