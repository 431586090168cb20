"""The spill: units decoded once, whole or absent, within bounds, and opened once."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest
import zstandard
from format_shards import hashes_of, index_of, samples_of

from zephon.config import Spill
from zephon.errors import ConfigError, StoreError
from zephon.formats.sample import Reading
from zephon.formats.source_index import SourceIndex
from zephon.formats.spill import choose_spilled, unit_name
from zephon.formats.unit_file import Unit, open_unit
from zephon.formats.units import open_units, with_unit
from zephon.page import Location
from zephon.stores.protocol import Stat

Write = Callable[[BinaryIO], None]


@pytest.fixture(autouse=True)
def fresh_process() -> Iterator[None]:
    """Begin without open units, as a new process does."""
    open_units.cache_clear()
    yield
    open_units.cache_clear()


def spilled(
    folder: Path, unit: int, write: Write, *, max_bytes: int = 1 << 20, large: bool = True, use: object = None
) -> bytes | None:
    """Return the whole decoded unit of a shard named s, by way of the spill."""
    location = Location("s", "jsonl", 0, 1, unit, 0, 1, large, not large)
    reading = Reading(spill=Spill(dir=str(folder), max_bytes=max_bytes))
    take: Callable[[Unit], bytes] = use or (lambda opened: opened.read(0, opened.num_bytes))  # type: ignore[assignment]
    return with_unit(location, Stat(1, 1), None, write, take, reading)


def file_of(folder: Path, unit: int) -> Path:
    return folder / unit_name("s", Stat(1, 1), unit, None)


def units_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.unit"))


def files_in(folder: Path) -> list[str]:
    """Everything but the count of bytes."""
    return sorted(path.name for path in folder.iterdir() if path.name != "room")


def writer(data: bytes, calls: list[int] | None = None) -> Write:
    def write(file: BinaryIO) -> None:
        if calls is not None:
            calls.append(len(data))
        file.write(data)

    return write


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


def test_units_used_longest_ago_make_room(tmp_path: Path) -> None:
    for unit in range(3):
        spilled(tmp_path, unit, writer(b"x" * 76), max_bytes=320)
        os.utime(file_of(tmp_path, unit), (unit, unit))
    open_units.cache_clear()
    assert spilled(tmp_path, 0, writer(b"never"), max_bytes=320) == b"x" * 76
    assert spilled(tmp_path, 3, writer(b"y" * 76), max_bytes=320) == b"y" * 76
    assert units_in(tmp_path) == sorted(file_of(tmp_path, unit).name for unit in (0, 2, 3))


def test_the_bound_holds_over_runs_and_sizes(tmp_path: Path) -> None:
    for unit in range(60):
        spilled(tmp_path, unit, writer(b"x" * (unit * 37 % 250)), max_bytes=1000)
        open_units.cache_clear()
        assert sum(path.stat().st_size for path in tmp_path.glob("*.unit")) <= 1000
        assert file_of(tmp_path, unit).exists()
    assert len(units_in(tmp_path)) > 3


@pytest.mark.parametrize("damage", [None, "", "many", "999999999999"])
def test_a_wrong_count_of_bytes_is_corrected(tmp_path: Path, damage: str | None) -> None:
    for unit in range(3):
        spilled(tmp_path, unit, writer(b"x" * 76), max_bytes=500)
    room = tmp_path / "room"
    if damage is None:
        room.unlink()
    else:
        room.write_text(damage)
    spilled(tmp_path, 3, writer(b"x" * 76), max_bytes=500)
    assert int(room.read_text()) == 400
    assert len(units_in(tmp_path)) == 4


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    old, new = tmp_path / "old.tmp", tmp_path / "new.tmp"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    spilled(tmp_path, 0, writer(b"x"))
    assert files_in(tmp_path) == sorted([file_of(tmp_path, 0).name, "new.tmp"])


def test_a_large_unit_that_never_fits_names_pack(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"s: .*spill\.max_bytes=300 .*zephon pack"):
        spilled(tmp_path, 0, writer(b"x" * 301), max_bytes=300)
    assert list(tmp_path.iterdir()) == []


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


def test_a_unit_file_gives_its_bytes_and_no_more(tmp_path: Path) -> None:
    spilled(tmp_path, 0, writer(b"0123456789"))
    unit = open_unit(file_of(tmp_path, 0))
    assert unit is not None
    assert [unit.read(*place) for place in ((0, 10), (3, 4), (8, 5), (10, 1), (50, 1))] == [
        b"0123456789", b"3456", b"89", b"", b"",
    ]  # fmt: skip
    assert open_unit(tmp_path / "none") is None
