"""`length: count`: the rows really delivered, counted once."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from corpus import oracle_source, with_sources
from oracle import count_rows
from oracle_plan import Corpus, Plan
from small_tokenizer import write_small_tokenizer
from streams import samples, stream

from zephon import DataError, Loader, count_sequences
from zephon.config import Source
from zephon.count import draws
from zephon.read_config import load_config


def delivered(config: Mapping[str, Any]) -> int:
    """Return the number after the last row that isn't wholly masked and padded, of a pass that is long enough."""
    with Loader({**config, "length": 600}) as loader:
        last = 0
        for batch in loader:
            for place, sequence in enumerate(batch.sequences):
                if batch["tokens"][place].any():
                    last = sequence + 1
    assert last < 600
    return last


EPOCHS = {"code": {"epochs": 1}, "web": {"epochs": 1}}


@pytest.mark.parametrize("kind", ["best_fit", "best_fit_split", "first_fit", "concat", "pad"])
@pytest.mark.parametrize("lanes", [1, 4, 7])
def test_a_counted_pass_has_the_rows_that_are_delivered(tmp_path: Path, kind: str, lanes: int) -> None:
    config = stream(tmp_path, settings={"lanes": lanes, "pack": {"kind": kind, "pool": 4}}, per_source=EPOCHS)
    counted = count_sequences(config)
    assert counted == delivered(config)
    with Loader({**config, "length": "count"}) as loader:
        assert len(loader) == counted


def test_the_oracle_counts_the_same(tmp_path: Path) -> None:
    made = {"code": samples("code", 30, empty=4), "web": samples("web", 50, longest=90)}
    config = stream(tmp_path, sources=made, per_source={"code": {"epochs": 2}, "web": {"epochs": 1}})
    corpora: dict[str, Corpus] = {}
    sources: dict[str, Source] = {}
    for name, docs in made.items():
        half = (len(docs) + 1) // 2
        paths = config["sources"][name]["path"]
        sources[name] = Source(path=paths, block_samples=4, epochs=config["sources"][name]["epochs"])
        corpora[name] = oracle_source(name, sources[name], [docs[:half], docs[half:]], paths, index_dir=tmp_path)
    plan = Plan(seed=5, lanes=4, sequence_length=32, sources={}, entries=((0, {"code": 1, "web": 1}),), pool=4)
    rows = count_rows(with_sources(plan, corpora))
    expected = max(lane + 4 * (count - 1) + 1 for lane, count in enumerate(rows) if count)
    assert count_sequences(config) == expected


def test_sources_without_epochs_are_counted_once(tmp_path: Path) -> None:
    config = stream(tmp_path)
    assert count_sequences(config) == count_sequences(stream(tmp_path, per_source=EPOCHS))


def test_epochs_are_counted(tmp_path: Path) -> None:
    once = stream(tmp_path, per_source=EPOCHS)
    thrice = stream(tmp_path, per_source={"code": {"epochs": 3}, "web": {"epochs": 3}})
    assert 2.8 < count_sequences(thrice) / count_sequences(once) < 3.1


def test_samples_are_measured_once(tmp_path: Path) -> None:
    config = stream(tmp_path)
    counted = count_sequences(config)
    # Without the shards' bytes nothing could be measured again; the index is kept by size and time.
    for source in config["sources"].values():
        for path in source["path"]:
            stat = Path(path).stat()
            Path(path).write_bytes(b"\n" * stat.st_size)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert count_sequences(config) == counted
    # Another packing, other lanes and another mixture need no more than the lengths.
    for changes in ({"pack": {"kind": "pad"}}, {"lanes": 2}, {"sequence_length": 16}):
        assert count_sequences({**config, **changes}) > 0
    with pytest.raises(DataError):
        # Another stage does.
        count_sequences(
            {**config, "sources": {"web": {**config["sources"]["web"], "stage": {"kind": "tokens", "field": "x"}}}}
        )


def test_a_damaged_count_is_counted_again(tmp_path: Path) -> None:
    config = stream(tmp_path)
    counted = count_sequences(config)
    kept = list((tmp_path / "index").glob("*.zephon-count"))
    assert len(kept) == 3
    good = {path: path.read_bytes() for path in kept}
    for damage in (
        lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]),
        lambda raw: raw[:-1],
        lambda raw: b"",
        lambda raw: raw * 2,
    ):
        for path in kept:
            path.write_bytes(damage(good[path]))
        assert count_sequences(config) == counted
        # And kept again.
        assert {path: path.read_bytes() for path in kept} == good


def test_a_cache_that_can_not_be_written_is_no_obstacle(tmp_path: Path) -> None:
    config = stream(tmp_path)
    (tmp_path / "file").write_text("not a folder")
    assert count_sequences({**config, "index_dir": str(tmp_path / "file")}) == count_sequences(config)


def test_sources_that_give_nothing_are_a_data_error(tmp_path: Path) -> None:
    config = stream(tmp_path, sources={"web": samples("web", 8, empty=8)})
    with pytest.raises(DataError, match=r"^length=count: the sources give no sequence at all; check their stages and"):
        count_sequences(config)


def test_bad_samples_raise_or_are_left_out(tmp_path: Path) -> None:
    config = stream(tmp_path, sources={"web": samples("web", 60)}, per_source={"web": {"epochs": 1}})
    path = Path(config["sources"]["web"]["path"][0])
    lines = path.read_text().splitlines()
    lines[7] = '{"tokens": [1, -1]}'
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(DataError, match=r"^source web: shard-000.jsonl, sample 7: 'tokens' .*on_bad_sample: skip$"):
        count_sequences(config)
    skipping = {**config, "on_bad_sample": "skip"}
    assert count_sequences(skipping) == delivered(skipping)


def write_texts(folder: Path) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    words = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"]
    texts = [" ".join(words[(i * 7 + j) % 9] for j in range(3 + i % 23)) for i in range(90)]
    (folder / "web.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return {
        "seed": 2,
        "lanes": 2,
        "sequence_length": 32,
        "device": "cpu",
        "backend": {"kind": "inline", "prefetch": 0},
        "index_dir": str(folder / "index"),
        "tokenizer": {"path": str(write_small_tokenizer(folder)), "eos": "<|endoftext|>"},
        "sources": {"web": {"path": str(folder / "web.jsonl"), "block_samples": 4, "epochs": 3}},
    }


def test_a_stage_that_draws_is_measured_in_each_epoch(tmp_path: Path) -> None:
    config = write_texts(tmp_path)
    fim = {
        "kind": "text",
        "field": "text",
        "fim": {"rate": 0.5, "prefix": "<|fim_prefix|>", "suffix": "<|fim_suffix|>", "middle": "<|fim_middle|>"},
    }
    for stage, records in (({"kind": "text", "field": "text"}, 1), (fim, 3)):
        folder = tmp_path / f"index{records}"
        settings = {
            **config,
            "index_dir": str(folder),
            "sources": {"web": {**config["sources"]["web"], "stage": stage}},
        }
        assert count_sequences(settings) == delivered(settings)
        # One record of lengths for each epoch where they may differ, and the count.
        assert len(list(folder.glob("*.zephon-count"))) == records + 1


def test_which_stages_draw(tmp_path: Path) -> None:
    assert not draws({"kind": "tokens"})
    assert not draws({"kind": "chat"})
    assert not draws({"kind": "text", "fim": None})
    assert draws({"kind": "text", "fim": {"rate": 0.5}})
    assert draws({"kind": "function"})
    assert load_config(stream(tmp_path)).length is None
