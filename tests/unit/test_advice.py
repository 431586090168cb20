"""What a configuration does that its owner may not want is said: by the Loader's log, `zephon run` and `index`."""

from __future__ import annotations

import io
import json
import logging
import tarfile
from pathlib import Path
from typing import Any

import pytest

from zephon import Loader, Topology
from zephon.cli.main import main


def config(folder: Path, *, samples: int, **changes: Any) -> dict[str, Any]:
    lines = (json.dumps({"ids": [n + 2] * (1 + n % 5)}) for n in range(samples))
    (folder / "mine.jsonl").write_text("\n".join(lines) + "\n")
    source = {"path": str(folder / "mine.jsonl"), "stage": {"kind": "tokens", "field": "ids"}, "block_samples": 1}
    return {
        "lanes": 4,
        "global_batch_size": 4,
        "sequence_length": 8,
        "sources": {"mine": source | changes.pop("source", {})},
        "pack": {"pool": 4},
        "backend": {"kind": "inline"},
        **changes,
    }


def said(settings: dict[str, Any], caplog: pytest.LogCaptureFixture, topology: Topology | None = None) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "zephon"), Loader(settings, topology) as loader:
        next(iter(loader))
    return [record.getMessage() for record in caplog.records]


def test_too_few_blocks_too_few_samples(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert said(config(tmp_path, samples=16), caplog) == []
    assert said(config(tmp_path, samples=64, source={"block_samples": 8}), caplog) == [
        "sources.mine: 8 blocks for 4 lanes × spread 4: samples come again before others have come once; "
        "a smaller block_samples helps"
    ]
    assert said(config(tmp_path, samples=15), caplog) == [
        "sources.mine: 15 blocks for 4 lanes × spread 4: samples come again before others have come once; "
        "fewer lanes help"
    ]
    assert said(config(tmp_path, samples=20, spread=1, pack={"pool": 6}), caplog) == [
        "sources: 20 samples, and 4 lanes × pack.pool 6 wait to be packed: samples come again before others have "
        "come once; fewer lanes or a smaller pool help"
    ]
    assert said(config(tmp_path, samples=20, spread=1, pack={"kind": "concat", "pool": 6}), caplog) == []


def test_members_that_dont_stand_together(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tarfile.open(tmp_path / "mine.tar", "w") as archive:
        for suffix in ("npy", "txt"):
            for number in range(40):
                member = tarfile.TarInfo(f"{number:03d}.{suffix}")
                member.size = 4
                archive.addfile(member, io.BytesIO(b"\2\0\0\0"))
    stage = {"kind": "tokens", "field": "npy", "dtype": "uint32"}
    settings = config(tmp_path, samples=1, source={"path": str(tmp_path / "mine.tar"), "stage": stage})
    assert said(settings, caplog) == [
        "sources.mine: 40 samples in 1 block, though block_samples is 1: members of a sample don't stand together in "
        "the shards; rewrite them with `zephon pack`"
    ]


def test_a_source_that_ends_repeats_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert said(config(tmp_path, samples=200, source={"epochs": 2}), caplog) == []
    assert said(config(tmp_path, samples=3, source={"epochs": 64}, length=12), caplog) == []


def test_lanes_of_a_counted_stream_that_end_apart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = config(tmp_path, samples=100, source={"block_samples": 50}, length="count")
    loader = Loader(settings)
    batches = list(loader)
    loader.close()
    masked = sum(not batch["loss_mask"].any() for batch in batches)
    assert said(settings, caplog) == [
        f"length=count: {masked} of {len(batches)} rows are all masked, for the 4 lanes end apart; fewer lanes or a "
        "smaller block_samples help"
    ]
    assert masked > len(batches) // 3
    assert said(config(tmp_path, samples=400, length="count"), caplog) == []


def test_one_rank_says_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = config(tmp_path, samples=8)
    assert len(said(settings, caplog, Topology(dp_rank=0, dp_size=2))) == 1
    assert said(settings, caplog, Topology(dp_rank=1, dp_size=2)) == []


@pytest.mark.parametrize("arguments", [["run", "--steps", "1"], ["index"], ["verify", "--steps", "1"]])
def test_commands_say_it_once(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(json.dumps(config(tmp_path, samples=8)))
    with pytest.raises(SystemExit) as ended:
        main([arguments[0], str(path), *arguments[1:]])
    assert ended.value.code == 0
    assert capsys.readouterr().err.count("8 blocks for 4 lanes × spread 4") == 1


def test_a_command_works_where_nobody_can_be_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    path = tmp_path / "mine.yaml"
    path.write_text(json.dumps(config(tmp_path, samples=8)))
    monkeypatch.setattr("sys.stderr", Full())
    with pytest.raises(SystemExit) as ended:
        main(["run", str(path), "--steps", "1"])
    assert ended.value.code == 0
    assert "digest" in capsys.readouterr().out
