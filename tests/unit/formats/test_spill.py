"""Which units are spilled: what is large, and what is medium where there is room for all of it."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from format_shards import index_of, samples_of
from spilled_units import units_in

from zephon.config import Spill
from zephon.errors import ConfigError
from zephon.formats.source_index import SourceIndex
from zephon.formats.spill import choose_spilled, unit_name
from zephon.stores.protocol import Stat


def test_names_tell_units_apart() -> None:
    stat = Stat(10, 20)
    names = {
        unit_name("a", stat, 0, None),
        unit_name("b", stat, 0, None),
        unit_name("a", Stat(11, 20), 0, None),
        unit_name("a", Stat(10, 21), 0, None),
        unit_name("a", stat, 1, None),
        unit_name("a", stat, 0, ("x",)),
        unit_name("a", stat, 0, ("x", "y")),
        unit_name("a", stat, 0, ("xy",)),
    }
    assert len(names) == 8


def index_named(name: str, text: bytes, count: int, folder: Path, **options: int) -> SourceIndex:
    path = folder / f"{name}.jsonl.gz"
    path.write_bytes(gzip.compress(text * count))
    return index_of(path, cache=folder, **options)


def test_a_unit_is_graded_by_its_blocks_and_its_bytes(tmp_path: Path) -> None:
    grades = [
        (index.medium_total() > 0, index.large_total() > 0)
        for index in (
            index_named(f"{count}-{limit}", b'{"t": 1}\n', count, tmp_path, block_samples=10, block_bytes=limit)
            for count, limit in ((20, 1 << 20), (21, 1 << 20), (160, 1 << 20), (161, 1 << 20))
        )
    ]
    assert grades == [(False, False), (True, False), (True, False), (False, True)]
    # One sample is one block, and decoding it takes the memory of many.
    assert index_named("huge", b'{"t": "%s"}\n' % (b"x" * 20_000), 1, tmp_path, block_bytes=1024).large_total() > 20_000


def choose(indices: dict[str, SourceIndex], max_bytes: int, folder: Path) -> list[bool]:
    """Return whether each source's first block is spilled."""
    spill = Spill(dir=str(folder / "spill"), max_bytes=max_bytes)
    chosen = choose_spilled(indices, spill, index_dir=None, columns={})
    assert {name: index.hash for name, index in chosen.items()} == {name: i.hash for name, i in indices.items()}
    return [index.location(0).large or index.location(0).medium for index in chosen.values()]


def test_medium_units_are_spilled_where_all_fit(tmp_path: Path) -> None:
    indices = {
        "large": index_named("large", b'{"t": 1}\n', 3000, tmp_path, block_bytes=1024),
        "medium": index_named("medium", b'{"t": 1}\n', 300, tmp_path),
        "other": index_named("other", b'{"t": 2}\n', 300, tmp_path),
        "small": index_named("small", b'{"t": 1}\n', 30, tmp_path),
    }
    assert choose(indices, 32_400, tmp_path) == [True, True, True, False]
    assert choose(indices, 32_399, tmp_path) == [True, False, False, False]
    assert choose(indices, 27_000, tmp_path) == [True, False, False, False]
    with pytest.raises(ConfigError, match=r"spill\.max_bytes=26,999 .* 27,000 bytes .*\(large 27,000\).*zephon pack"):
        choose(indices, 26_999, tmp_path)
    del indices["large"]
    assert choose(indices, 5_400, tmp_path) == [True, True, False]
    assert choose(indices, 5_399, tmp_path) == [False, False, False]


def test_medium_units_do_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("no home")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    indices = {"web": index_named("medium", b'{"t": 1}\n', 300, tmp_path)}
    chosen = choose_spilled(indices, Spill(), index_dir=None, columns={})
    assert not chosen["web"].location(0).medium


def test_a_configurations_units_stay_and_others_go(tmp_path: Path) -> None:
    folder = tmp_path / "spill"
    indices = {name: index_named(name, b'{"t": 1}\n', 300, tmp_path) for name in ("old", "mine", "new")}
    sizes = {}
    for number, name in enumerate(("mine", "old")):
        before = set(units_in(folder))
        samples_of(indices[name].with_medium_spilled(), cache=tmp_path)
        (sizes[name],) = set(units_in(folder)) - before
        os.utime(folder / sizes[name], (number + 1, number + 1))
    # Older than the other's, but it is this configuration's.
    spill = Spill(dir=str(folder), max_bytes=6_000)
    chosen = choose_spilled({name: indices[name] for name in ("mine", "new")}, spill, index_dir=None, columns={})
    samples_of(chosen["new"], spill=spill, cache=tmp_path)
    assert sizes["mine"] in units_in(folder)
    assert sizes["old"] not in units_in(folder)
    assert len(units_in(folder)) == 2
