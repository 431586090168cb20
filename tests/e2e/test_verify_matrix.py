"""`zephon verify` over every topology, backend, number of workers and prefetch depth, on awkward sources."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from zephon.cli.main import main

SEQUENCE = 32
DIGEST = re.compile(r"\b[0-9a-f]{32}\b")
# By lanes: all ways to run them have this one.
DIGESTS = {48: "2559089a53af22bdf33de6677a83a3d7", 8: "61bf62618100b8b1512d4912a10f410c"}
TOKENS = {"kind": "tokens", "field": "tokens"}
FILTER = {"kind": "function", "function": "filter_stage:one_in_a_thousand"}


def write(path: Path, lengths: Iterator[int]) -> str:
    draw = random.Random(7)
    with path.open("w") as file:
        for number, length in enumerate(lengths):
            record = {"number": number, "tokens": [draw.randrange(999) for _ in range(length)]}
            file.write(json.dumps(record) + "\n")
    return str(path)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A source of one sample, one of very unequal lengths, one half of it empty, one whose filter drops 99.9%."""
    draw = random.Random(3)
    spread = [1, 50 * SEQUENCE, *(int(SEQUENCE * 50 ** draw.uniform(-1, 1)) for _ in range(60))]
    sources = {
        "one": {"path": write(tmp_path / "one.jsonl", iter([9])), "weight": 0.1, "stage": TOKENS},
        "long": {"path": write(tmp_path / "long.jsonl", iter(spread)), "weight": 0.4, "stage": TOKENS},
        "gaps": {
            "path": write(tmp_path / "gaps.jsonl", (draw.choice([0, 7, 20]) for _ in range(90))),
            "weight": 0.4,
            "stage": TOKENS,
        },
        "rare": {
            "path": write(tmp_path / "rare.jsonl", (20 for _ in range(6000))),
            "weight": 0.02,
            "stage": FILTER,
            "block_samples": 64,
        },
    }
    values = {
        "seed": 11,
        "global_batch_size": 48,
        "micro_batch_size": 3,
        "sequence_length": SEQUENCE,
        "index_dir": str(tmp_path / "index"),
        "sources": {name: {"block_samples": 4, **source} for name, source in sources.items()},
        "device": "cpu",
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("lanes", "backends", "depths"),
    [
        # No power of two, and more lanes than most sources have blocks.
        (48, "inline,threads", "0,1,4"),
        (48, "processes", "2"),
        # Lanes that 16 ranks share.
        (8, "inline,threads", "0,1,4"),
        (8, "processes", "0"),
    ],
)
def test_one_digest_everywhere(
    config: Path, capsys: pytest.CaptureFixture[str], lanes: int, backends: str, depths: str
) -> None:
    options = ["--dp-sizes", "1,2,4,8,16", "--backends", backends, "--workers", "1,2,3", "--prefetch", depths]
    with pytest.raises(SystemExit) as ended:
        main(["verify", str(config), "--steps", "2", "-o", f"lanes={lanes}", *options])
    out, err = capsys.readouterr()
    assert not ended.value.code, out + err
    assert set(DIGEST.findall(out)) == {DIGESTS[lanes]}
