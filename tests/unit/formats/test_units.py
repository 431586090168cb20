"""Decoded units: decoded once, whole or absent, and opened once."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest
import zstandard
from format_shards import hashes_of, index_of, samples_of
from spilled_units import file_of, files_in, spilled, units_in, writer

from zephon.errors import StoreError
from zephon.formats.unit_file import Unit, open_unit
from zephon.formats.units import open_units


@pytest.fixture(autouse=True)
def fresh_process() -> Iterator[None]:
    """Begin without open units, as a new process does."""
    open_units.cache_clear()
    yield
    open_units.cache_clear()


@pytest.mark.parametrize("large", [False, True])
def test_threads_decode_a_unit_once(tmp_path: Path, large: bool) -> None:
    calls: list[int] = []
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: spilled(tmp_path, 0, writer(b"x" * 1000, calls), large=large), range(8)))
    assert calls == [1000]
    assert found == {b"x" * 1000}
    assert files_in(tmp_path) == [file_of(tmp_path, 0).name]


def test_a_unit_being_decoded_holds_up_no_other(tmp_path: Path) -> None:
    begun, finish = threading.Event(), threading.Event()

    def slow(file: BinaryIO) -> None:
        begun.set()
        assert finish.wait(30)
        file.write(b"slow")

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(spilled, tmp_path, 0, slow)
        try:
            assert begun.wait(30)
            assert spilled(tmp_path, 1, writer(b"quick")) == b"quick"
            assert not waiting.done()
        finally:
            finish.set()
        assert waiting.result(30) == b"slow"


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
    assert len(files_in(tmp_path / "spill")) == 1


def test_a_failed_decode_leaves_nothing_and_may_be_tried_again(tmp_path: Path) -> None:
    def fail(file: BinaryIO) -> None:
        file.write(b"half")
        raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        spilled(tmp_path, 0, fail)
    assert list(tmp_path.iterdir()) == []
    # What a killed process left is longer than the unit.
    file_of(tmp_path, 0).with_suffix(".tmp").write_bytes(b"half" * 100)
    assert spilled(tmp_path, 0, writer(b"whole")) == b"whole"
    assert files_in(tmp_path) == [file_of(tmp_path, 0).name]


def test_blocks_are_read_without_looking_for_the_file_again(tmp_path: Path) -> None:
    assert spilled(tmp_path, 0, writer(b"unit")) == b"unit"
    file_of(tmp_path, 0).unlink()
    # Still open here; and decoded again once it isn't.
    assert spilled(tmp_path, 0, writer(b"never")) == b"unit"
    open_units.cache_clear()
    assert spilled(tmp_path, 0, writer(b"again")) == b"again"


def test_few_units_are_open_at_a_time(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(2):
        for unit in range(100):
            data = b"%d" % unit
            assert spilled(tmp_path, unit, writer(data)) == data
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 64


@pytest.mark.parametrize("large", [False, True])
def test_a_unit_that_fails_to_be_read_is_opened_again(tmp_path: Path, large: bool) -> None:
    calls: list[int] = []

    def use(unit: Unit) -> bytes:
        calls.append(1)
        if len(calls) == 2:
            raise OSError(116, "Stale file handle")
        return unit.read(0, 10)

    for _ in range(2):
        assert spilled(tmp_path, 0, writer(b"unit"), use=use, large=large) == b"unit"
    assert len(calls) == 3


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("tear", ["cut", "zeros", "empty", "trailer"])
def test_a_torn_file_is_decoded_again(tmp_path: Path, large: bool, tear: str) -> None:
    spilled(tmp_path, 0, writer(b"unit" * 1000), large=large)
    file = file_of(tmp_path, 0)
    raw = bytearray(file.read_bytes())
    if tear == "cut":
        raw = raw[: len(raw) // 2]
    elif tear == "empty":
        raw = bytearray()
    elif tear == "trailer":
        raw[-24:] = bytes(24)
    else:
        # As a crash leaves a file that wasn't synced: of the right size, with pages that were never written.
        raw[512:1024] = bytes(512)
    file.write_bytes(raw)
    open_units.cache_clear()
    found = spilled(tmp_path, 0, writer(b"anew"), large=large)
    # A synced file is only torn by others, and reading gigabytes to find out would cost more than it is worth.
    assert found == (bytes(raw[:-24]) if large and tear == "zeros" else b"anew")


def test_a_folder_that_cannot_be_used_names_the_field(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match=r"s: can't use the spill .*set spill\.dir"):
        spilled(tmp_path / "file" / "x", 0, writer(b"x"))


def test_medium_units_do_without_a_spill_that_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    calls: list[int] = []
    for unit in range(3):
        assert spilled(tmp_path / "file" / "x", unit, writer(b"x", calls), large=False) is None
        assert spilled(tmp_path, unit, writer(b"x" * 301, calls), large=False, max_bytes=300) is None
    # Tried once, so that nothing is decoded twice over and over.
    assert calls == [301]
    assert files_in(tmp_path) == ["file"]


def test_a_changed_shard_is_decoded_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    for text in (b"old", b"new"):
        path.write_bytes(gzip.compress(b'{"t": "%s"}\n' % text * 3000, mtime=0))
        index = index_of(path, cache=tmp_path, block_bytes=1024)
        assert {sample.fields["t"] for sample in samples_of(index, cache=tmp_path)} == {text.decode()}


def test_medium_units_read_the_same_with_and_without_the_spill(tmp_path: Path) -> None:
    raw = b"".join(b'{"n": %d, "text": "%s"}\n' % (i, b"\xc3\xbc" * (i % 90)) for i in range(2000))
    for name, data in (("a.jsonl.gz", gzip.compress(raw)), ("b.jsonl.zst", zstandard.compress(raw))):
        path = tmp_path / name
        path.write_bytes(data)
        index = index_of(path, cache=tmp_path, block_samples=200)
        chosen = index.with_medium_spilled()
        assert (index.location(0).medium, chosen.location(0).medium) == (False, True)
        assert chosen.hash == index.hash
        assert samples_of(chosen, cache=tmp_path) == samples_of(index, cache=tmp_path)
        assert hashes_of(chosen, cache=tmp_path) == hashes_of(index, cache=tmp_path)
    assert len(units_in(tmp_path / "spill")) == 2


def test_a_unit_file_gives_its_bytes_and_no_more(tmp_path: Path) -> None:
    spilled(tmp_path, 0, writer(b"0123456789"))
    unit = open_unit(file_of(tmp_path, 0))
    assert unit is not None
    assert [unit.read(*place) for place in ((0, 10), (3, 4), (8, 5), (10, 1), (50, 1))] == [
        b"0123456789", b"3456", b"89", b"", b"",
    ]  # fmt: skip
    assert open_unit(tmp_path / "none") is None
