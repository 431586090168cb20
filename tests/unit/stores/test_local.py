"""Local files: transient faults are outlived, others told at once, descriptors bounded."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from zephon.errors import ConfigError, DataError, StoreError
from zephon.stores.file import StoreFile
from zephon.stores.local import LocalStore
from zephon.stores.select import store_for


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "shard"
    path.write_bytes(bytes(range(256)) * 10)
    return path


def failing(monkeypatch: pytest.MonkeyPatch, function: str, codes: list[int]) -> None:
    """Make an os function fail with these codes, one a call, before it works."""
    real = getattr(os, function)

    def call(*arguments: Any, **named: Any) -> Any:
        if codes:
            code = codes.pop(0)
            raise OSError(code, os.strerror(code))
        return real(*arguments, **named)

    monkeypatch.setattr(os, function, call)


def test_ranges(shard: Path) -> None:
    store = LocalStore()
    assert store.read(str(shard), 250, 10) == bytes([*range(250, 256), *range(4)])
    assert store.read(str(shard), 2560, 0) == b""
    assert store.size(str(shard)) == 2560
    assert store.stat(str(shard)).mtime_ns == shard.stat().st_mtime_ns
    store.close()


@pytest.mark.parametrize("function", ["pread", "open"])
def test_transient_faults_are_outlived(shard: Path, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    pauses: list[float] = []
    store = LocalStore(sleep=pauses.append)
    failing(monkeypatch, function, [errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE])
    assert store.read(str(shard), 0, 3) == b"\0\1\2"
    assert pauses == [0.1, 0.2, 0.4, 0.8]


def test_a_fault_that_stays_is_told(shard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    store = LocalStore(sleep=pauses.append, attempts=3)
    failing(monkeypatch, "pread", [errno.EIO] * 9)
    with pytest.raises(StoreError, match=r"shard: Input/output error in 3 attempts; check the disk"):
        store.read(str(shard), 0, 3)
    assert len(pauses) == 2


@pytest.mark.parametrize("code", [errno.EACCES, errno.EISDIR, errno.ELOOP])
def test_other_faults_are_told_at_once(shard: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    pauses: list[float] = []
    failing(monkeypatch, "open", [code])
    with pytest.raises(StoreError, match="check the file and its permissions"):
        LocalStore(sleep=pauses.append).read(str(shard), 0, 3)
    assert pauses == []


def test_missing_files_are_told_at_once(tmp_path: Path) -> None:
    pauses: list[float] = []
    store = LocalStore(sleep=pauses.append)
    for call in (lambda path: store.read(path, 0, 1), store.size, store.stat):
        with pytest.raises(StoreError, match=r"gone: no such file; check the path"):
            call(str(tmp_path / "gone"))
    with pytest.raises(StoreError, match="not a regular file"):
        store.stat(str(tmp_path))
    assert pauses == []


def test_a_short_file_is_told(shard: Path) -> None:
    store = LocalStore()
    with pytest.raises(DataError, match=r"bytes 2550\.\.2570 .* ends at 2560: it shrank since it was indexed"):
        store.read(str(shard), 2550, 20)


def test_parts_of_a_read_are_joined(shard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: real(fd, min(size, 7), offset))
    assert LocalStore().read(str(shard), 5, 100) == shard.read_bytes()[5:105]


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_descriptors_are_bounded(tmp_path: Path) -> None:
    paths = [tmp_path / str(number) for number in range(40)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * 100)
    before = descriptors()
    store = LocalStore(max_open=4)

    def read(number: int) -> bool:
        return store.read(str(paths[number % 40]), 50, 10) == bytes([number % 40]) * 10

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(2000)))
    assert descriptors() <= before + 4
    store.close()
    assert descriptors() <= before


def test_a_file_put_in_place_of_another_is_seen_after_stat(shard: Path, tmp_path: Path) -> None:
    store = LocalStore()
    assert store.read(str(shard), 0, 2) == b"\0\1"
    (tmp_path / "new").write_bytes(b"xy")
    (tmp_path / "new").rename(shard)
    assert store.stat(str(shard)).size == 2
    assert store.read(str(shard), 0, 2) == b"xy"


def test_as_a_python_file(shard: Path) -> None:
    file = StoreFile(LocalStore(), str(shard), 2560)
    assert file.seek(-3, os.SEEK_END) == 2557
    assert file.read() == bytes([253, 254, 255])
    assert file.read(5) == b""
    assert file.seek(1) == 1
    assert file.seek(1, os.SEEK_CUR) == 2
    buffer = bytearray(4)
    assert file.readinto(buffer) == 4
    assert buffer == bytes([2, 3, 4, 5])
    assert file.tell() == 6
    file.close()


def test_a_scheme_without_a_store_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"s3://bucket/x: no store for s3://; .* mount"):
        store_for("s3://bucket/x")
    assert store_for("/a") is store_for("/b")
