"""The spill: units decoded once, whole or absent, within bounds."""

from __future__ import annotations

import gzip
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest
from format_shards import index_of, samples_of

from zephon.config import Spill
from zephon.errors import ConfigError, StoreError
from zephon.formats.sample import Reading
from zephon.formats.spill import check_spill, spilled, unit_name
from zephon.stores.protocol import Stat


def reading(folder: Path, max_bytes: int = 1 << 20) -> Reading:
    return Reading(spill=Spill(dir=str(folder), max_bytes=max_bytes))


def writer(data: bytes, calls: list[int]) -> object:
    def write(file: BinaryIO) -> None:
        calls.append(len(data))
        file.write(data)

    return write


def test_threads_decode_a_unit_once(tmp_path: Path) -> None:
    calls: list[int] = []
    with ThreadPoolExecutor(8) as pool:
        paths = set(
            pool.map(
                lambda _: spilled("a.unit", writer(b"x" * 1000, calls), reading(tmp_path), shard="s"),  # type: ignore[arg-type]
                range(8),
            )
        )
    assert calls == [1000]
    assert paths == {str(tmp_path / "a.unit")}
    assert [file.name for file in tmp_path.iterdir()] == ["a.unit"]


READ = """
import sys
from zephon.config import Source, Spill
from zephon.formats.index import build_index
from zephon.formats.read import read_samples
path, folder = sys.argv[1:]
index = build_index("web", Source(path=path, block_bytes=1024), index_dir=folder)
spill = Spill(dir=folder + "/spill")
for block in range(index.num_blocks):
    print(read_samples(index.location(block), [0], columns=None, spill=spill, index_dir=folder)[1])
"""


def test_processes_share_a_unit(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(b'{"n": %d, "text": "%s"}\n' % (i, b"x" * 200) for i in range(3000))))
    running = [
        subprocess.Popen([sys.executable, "-c", READ, str(path), str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    outputs = {process.communicate(timeout=60)[0] for process in running}
    assert [process.returncode for process in running] == [0] * 3
    assert len(outputs) == 1
    assert len(list((tmp_path / "spill").iterdir())) == 1


def test_a_failed_decode_leaves_nothing_and_may_be_tried_again(tmp_path: Path) -> None:
    def fail(file: BinaryIO) -> None:
        file.write(b"half")
        raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        spilled("a.unit", fail, reading(tmp_path), shard="s")
    assert list(tmp_path.iterdir()) == []
    path = spilled("a.unit", writer(b"whole", []), reading(tmp_path), shard="s")  # type: ignore[arg-type]
    assert Path(path).read_bytes() == b"whole"


def test_units_used_longest_ago_make_room(tmp_path: Path) -> None:
    import os

    for number in range(3):
        name = f"{number}.unit"
        spilled(name, writer(b"x" * 100, []), reading(tmp_path, 300), shard="s")  # type: ignore[arg-type]
        os.utime(tmp_path / name, (number, number))
    spilled("0.unit", writer(b"never", []), reading(tmp_path, 300), shard="s")  # type: ignore[arg-type]
    spilled("3.unit", writer(b"x" * 100, []), reading(tmp_path, 300), shard="s")  # type: ignore[arg-type]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["0.unit", "2.unit", "3.unit"]


def test_a_unit_that_never_fits_names_pack(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"s: .*spill\.max_bytes=300 .*zephon pack"):
        spilled("a.unit", writer(b"x" * 301, []), reading(tmp_path, 300), shard="s")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_used_names_the_field(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match=r"s: can't decode into the spill .*set spill\.dir"):
        spilled("a.unit", writer(b"x", []), reading(tmp_path / "file" / "x"), shard="s")  # type: ignore[arg-type]


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


def test_a_changed_shard_is_decoded_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    for text in (b"old", b"new"):
        path.write_bytes(gzip.compress(b'{"t": "%s"}\n' % text * 3000, mtime=0))
        index = index_of(path, cache=tmp_path, block_bytes=1024)
        assert {sample.fields["t"] for sample in samples_of(index, cache=tmp_path)} == {text.decode()}


def test_what_is_needed_is_known_before(tmp_path: Path) -> None:
    large = tmp_path / "a.jsonl.gz"
    large.write_bytes(gzip.compress(b'{"t": 1}\n' * 3000))
    small = tmp_path / "b.jsonl.gz"
    small.write_bytes(gzip.compress(b'{"t": 1}\n' * 30))
    indices = [index_of(path, cache=tmp_path, block_bytes=1024) for path in (large, small)]
    check_spill(indices, Spill(max_bytes=27_000))
    with pytest.raises(ConfigError, match=r"spill\.max_bytes=26,999 .* 27,000 bytes .*\(web 27,000\).*zephon pack"):
        check_spill(indices, Spill(max_bytes=26_999))
    check_spill(indices[1:], Spill(max_bytes=1))
