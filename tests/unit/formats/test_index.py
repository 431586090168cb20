"""The index of a source: its numbers, its hash, and the files that keep it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_shards import index_of, samples_of, tables_of, write_tar

from zephon.config import Source
from zephon.errors import ConfigError, StoreError
from zephon.formats import index as indexing
from zephon.formats.index import build_index
from zephon.formats.tar import TarFormat


def shard(path: Path, count: int = 100, size: int = 500) -> Path:
    return write_tar(path, [(f"{i:05d}.txt", bytes([97 + i % 26]) * size) for i in range(count)])


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the shards that are really indexed, not taken from the cache."""
    made: list[str] = []
    real = TarFormat.index

    def index(self: TarFormat, store: Any, path: str, *rest: Any, **named: Any) -> Any:
        made.append(Path(path).name)
        return real(self, store, path, *rest, **named)

    monkeypatch.setattr(TarFormat, "index", index)
    return made


def test_numbers(tmp_path: Path) -> None:
    index = index_of(shard(tmp_path / "a.tar"), shard(tmp_path / "b.tar", 30), cache=tmp_path, block_samples=40)
    assert index.block_samples.tolist() == [40, 40, 20, 30]
    assert index.block_samples.dtype == np.int64
    assert (index.num_blocks, index.num_samples, index.num_bytes) == (4, 130, 130 * 500)
    assert index.mean_tokens == 125
    assert [index.location(block).first for block in range(4)] == [0, 40, 80, 0]
    assert [Path(index.location(block).path).name for block in range(4)] == ["a.tar"] * 3 + ["b.tar"]
    assert index.samples_in(2) == 20
    assert type(index.samples_in(2)) is int
    assert index.location(1).size == 40 * 1024


def test_mean_is_at_least_one(tmp_path: Path) -> None:
    assert index_of(shard(tmp_path / "a.tar", size=0), cache=tmp_path).mean_tokens == 1


def test_hash_is_of_the_block_table_alone(tmp_path: Path) -> None:
    index = index_of(shard(tmp_path / "a.tar"), shard(tmp_path / "b.tar", 30), cache=tmp_path, block_samples=40)
    digest = blake2b(digest_size=16)
    for count, rows in ((3, tables_of(index)[:3]), (1, tables_of(index)[3:])):
        digest.update(count.to_bytes(8, "little"))
        digest.update(np.array([(offset, size, n, 0) for offset, size, _, n in rows], dtype="<i8").tobytes())
    assert index.hash == digest.hexdigest()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for old, new in (("a", "x"), ("b", "y")):
        shutil.copy(tmp_path / f"{old}.tar", elsewhere / f"{new}.tar")
        os.utime(elsewhere / f"{new}.tar", (1, 1))
    write_tar(elsewhere / "w.tar", [])
    moved = index_of(*(elsewhere / f"{name}.tar" for name in "wxy"), cache=tmp_path, block_samples=40)
    assert moved.hash == index.hash


def test_hash_tells_sources_apart(tmp_path: Path) -> None:
    a, b = shard(tmp_path / "a.tar"), shard(tmp_path / "b.tar", 30)
    hashes = {index_of(*shards, cache=tmp_path).hash for shards in ((a,), (b,), (a, b), (b, a))}
    hashes.add(index_of(a, b, cache=tmp_path, block_samples=10).hash)
    assert len(hashes) == 5


def test_an_index_is_kept_beside_the_shard(tmp_path: Path, builds: list[str]) -> None:
    path = shard(tmp_path / "a.tar")
    source = Source(path=str(path))
    first = build_index("web", source, index_dir=None)
    again = build_index("web", source, index_dir=None)
    assert builds == ["a.tar"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.tar", "a.tar.zephon-index"]
    assert (first.hash, first.num_bytes) == (again.hash, again.num_bytes)
    assert tables_of(first) == tables_of(again)
    # Small: of blocks, not of samples.
    assert (tmp_path / "a.tar.zephon-index").stat().st_size < 500


def test_index_dir_keeps_shards_of_one_name_apart(tmp_path: Path, builds: list[str]) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        shard(tmp_path / folder / "a.tar", 10)
        for _ in range(2):
            index_of(tmp_path / folder / "a.tar", cache=tmp_path / "cache")
    assert builds == ["a.tar", "a.tar"]
    assert len(list((tmp_path / "cache").iterdir())) == 2
    assert [file.name for file in (tmp_path / "x").iterdir()] == ["a.tar"]


def test_a_folder_that_cannot_be_written_uses_the_users_cache(
    tmp_path: Path, builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    path = shard(tmp_path / "a.tar")
    # A folder in the index's place fails for every user, root too.
    (tmp_path / "a.tar.zephon-index").mkdir()
    for _ in range(2):
        build_index("web", Source(path=str(path)), index_dir=None)
    assert builds == ["a.tar"]
    (kept,) = (tmp_path / "home" / "zephon" / "index").iterdir()
    assert kept.name.endswith("-a.tar.zephon-index")


def test_nowhere_to_keep_it_is_no_error(tmp_path: Path, builds: list[str]) -> None:
    path = shard(tmp_path / "a.tar")
    (tmp_path / "file").write_bytes(b"")
    for _ in range(2):
        assert build_index("web", Source(path=str(path)), index_dir=str(tmp_path / "file" / "x")).num_samples == 100
    assert builds == ["a.tar", "a.tar"]


def test_a_changed_shard_or_limit_is_indexed_again(tmp_path: Path, builds: list[str]) -> None:
    path = shard(tmp_path / "a.tar")
    assert index_of(path, cache=tmp_path).num_blocks == 2
    assert index_of(path, cache=tmp_path, block_samples=10).num_blocks == 10
    assert index_of(path, cache=tmp_path, block_samples=10, block_bytes=2048).num_blocks == 50
    shard(path, 50)
    assert index_of(path, cache=tmp_path).num_samples == 50
    os.utime(path, ns=(0, 12345))
    index_of(path, cache=tmp_path)
    assert len(builds) == 5


def test_another_version_or_format_is_indexed_again(
    tmp_path: Path, builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shard(tmp_path / "a.tar")
    index_of(path, cache=tmp_path)
    monkeypatch.setattr("zephon.formats.index_cache.VERSION", 99)
    index_of(path, cache=tmp_path)
    assert len(builds) == 2


def test_a_damaged_index_is_made_again(tmp_path: Path, builds: list[str]) -> None:
    path = shard(tmp_path / "a.tar")
    kept = tmp_path / "a.tar.zephon-index"
    source = Source(path=str(path))
    expected = tables_of(build_index("web", source, index_dir=None))
    whole = kept.read_bytes()
    damaged = [b"", whole[:-1], whole + b"x", b"\0" * len(whole), whole[:20]]
    damaged += [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in range(0, len(whole), 7)]
    for number, raw in enumerate(damaged):
        kept.write_bytes(raw)
        assert tables_of(build_index("web", source, index_dir=None)) == expected
        assert len(builds) == number + 2
        assert kept.read_bytes() == whole


BUILD = """
import sys
from zephon.config import Source
from zephon.formats.index import build_index
index = build_index("web", Source(path=sys.argv[1]), index_dir=None)
print(index.hash, index.num_samples)
"""


def test_many_builders_at_once(tmp_path: Path) -> None:
    for number in range(6):
        shard(tmp_path / f"{number}.tar", 300)
    running = [
        subprocess.Popen([sys.executable, "-c", BUILD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outputs = {process.communicate(timeout=60)[0] for process in running}
    assert [process.returncode for process in running] == [0] * 3
    (output,) = outputs
    assert output.split()[1] == "1800"
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == sorted(f"{number}.tar{suffix}" for number in range(6) for suffix in ("", ".zephon-index"))


def test_threads_do_the_work_once(tmp_path: Path, builds: list[str]) -> None:
    path = shard(tmp_path / "a.tar", 500)
    with ThreadPoolExecutor(8) as pool:
        hashes = set(pool.map(lambda _: index_of(path, cache=tmp_path).hash, range(8)))
    assert len(hashes) == 1
    assert builds == ["a.tar"]


def test_the_first_bad_shard_is_named(tmp_path: Path) -> None:
    paths = [shard(tmp_path / f"{number}.tar") for number in range(6)]
    for bad in (2, 4):
        paths[bad].write_bytes(paths[bad].read_bytes()[:700])
    for _ in range(3):
        with pytest.raises(Exception, match=r"2\.tar: cut off"):
            index_of(*paths, cache=tmp_path)


def test_missing_shards_and_unknown_formats_name_the_field(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"sources\.web\.path"):
        index_of(tmp_path / "none.tar", cache=tmp_path)
    (tmp_path / "a.txt").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"sources\.web\.format"):
        index_of(tmp_path / "a.txt", cache=tmp_path)
    with pytest.raises(ConfigError, match=r"sources\.web\.format: unknown kind 'csv'; known: tar"):
        index_of(tmp_path / "a.txt", cache=tmp_path, format="csv")


def test_formats_may_be_mixed_in_a_source(tmp_path: Path) -> None:
    lines = tmp_path / "b.jsonl"
    lines.write_bytes(b'{"txt": "x"}\n' * 3)
    index = index_of(shard(tmp_path / "a.tar", 2), lines, cache=tmp_path)
    assert [set(sample.fields) for sample in samples_of(index, cache=tmp_path)] == [{"txt"}] * 5


def test_a_shard_written_while_it_is_indexed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shard(tmp_path / "a.tar")
    real = TarFormat.index

    def index(self: TarFormat, store: Any, name: str, *rest: Any, **named: Any) -> Any:
        table = real(self, store, name, *rest, **named)
        with path.open("ab") as file:
            file.write(b"more")
        return table

    monkeypatch.setattr(TarFormat, "index", index)
    with pytest.raises(Exception, match="changed while it was indexed"):
        index_of(path, cache=tmp_path)


def test_progress_is_silent_without_a_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    indexing.build_index("web", Source(path=str(shard(tmp_path / "a.tar"))), index_dir=str(tmp_path), progress=True)
    assert capfd.readouterr() == ("", "")
