"""Tar: whole samples, whatever wrote the archive, and honest about damage."""

from __future__ import annotations

import io
import tarfile
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset
from format_shards import hashes_of, index_of, samples_of, tables_of, write_tar
from hypothesis import given, settings
from hypothesis import strategies as st

from zephon.errors import DataError
from zephon.formats.tar_idx import walk_in_parts
from zephon.formats.tar_walk import Window, walk
from zephon.stores.local import LocalStore

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


def reference(path: Path) -> list[tuple[str, dict[str, bytes]]]:
    """Samples by tarfile: members with one basename, in the order of first members."""
    samples: dict[str, dict[str, bytes]] = {}
    with tarfile.open(path) as tar:
        for info in tar:
            folder, slash, name = info.name.rpartition("/")
            stem, dot, extension = name.partition(".")
            if info.isreg() and stem and dot:
                file = tar.extractfile(info)
                assert file is not None
                samples.setdefault(folder + slash + stem, {})[extension] = file.read()
    return list(samples.items())


def read(path: Path, cache: Path, **source: Any) -> list[tuple[str, dict[str, Any]]]:
    return [(sample.key, sample.fields) for sample in samples_of(index_of(path, cache=cache, **source), cache=cache)]


def numbered(count: int, size: int = 900) -> list[tuple[str, bytes]]:
    return [(f"{i:06d}.{kind}", bytes([i % 251]) * (size + i)) for i in range(count) for kind in ("txt", "meta.json")]


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("block_samples", [1, 7, 64])
def test_blocks_give_what_tarfile_gives(tmp_path: Path, format_: int, block_samples: int) -> None:
    path = write_tar(tmp_path / "a.tar", numbered(150), format_=format_)
    assert read(path, tmp_path, block_samples=block_samples) == reference(path)


@pytest.mark.parametrize("format_", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_foreign_names(tmp_path: Path, format_: int) -> None:
    names = ["x" * 99, "x" * 100, "x" * 101, "d" * 120 + "/" + "n" * 130, "ünïcode-" * 20, "plain"]
    members = [(f"{name}.{kind}", name.encode()) for name in names for kind in ("txt", "cls")]
    path = write_tar(tmp_path / "a.tar", members, format_=format_)
    assert read(path, tmp_path, block_samples=1) == reference(path)


def test_ustar_prefix(tmp_path: Path) -> None:
    members = [("d" * 90 + "/" + "e" * 50 + f"/{i}.txt", b"text") for i in range(5)]
    path = write_tar(tmp_path / "a.tar", members)
    assert read(path, tmp_path, block_samples=2) == reference(path)


def test_pax_size_and_base_256_size(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name in ("a.txt", "b.txt"):
            info = tarfile.TarInfo(name)
            info.size = 5
            info.pax_headers = {"size": "5", "comment": "size given twice"}
            tar.addfile(info, io.BytesIO(b"hello"))
    raw = bytearray(write_tar(tmp_path / "c.tar", [("c.txt", b"hello"), ("d.txt", b"there")]).read_bytes())
    raw[124:136] = b"\x80" + (5).to_bytes(11, "big")
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw[:512])
    (tmp_path / "c.tar").write_bytes(raw)
    assert read(path, tmp_path) == [("a", {"txt": b"hello"}), ("b", {"txt": b"hello"})]
    assert read(tmp_path / "c.tar", tmp_path) == [("c", {"txt": b"hello"}), ("d", {"txt": b"there"})]


def test_only_regular_members_with_an_extension_count(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for name, kind in [
            ("dir.d", tarfile.DIRTYPE),
            ("link.txt", tarfile.SYMTYPE),
            ("a.txt", tarfile.REGTYPE),
            ("hard.txt", tarfile.LNKTYPE),
            ("fifo.txt", tarfile.FIFOTYPE),
            ("README", tarfile.REGTYPE),
            (".hidden", tarfile.REGTYPE),
            ("__meta__/x.txt", tarfile.REGTYPE),
            ("b.txt", tarfile.REGTYPE),
        ]:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.linkname = "a.txt" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            tar.addfile(info)
    assert read(path, tmp_path, block_samples=1) == [("a", {"txt": b""}), ("b", {"txt": b""})]


def test_old_v7_header(tmp_path: Path) -> None:
    raw = bytearray(write_tar(tmp_path / "a.tar", [("a.txt", b"old")]).read_bytes())
    raw[257:265] = bytes(8)
    raw[148:156] = b" " * 8
    raw[148:156] = b"%06o\0 " % sum(raw[:512])
    (tmp_path / "a.tar").write_bytes(raw)
    assert read(tmp_path / "a.tar", tmp_path) == [("a", {"txt": b"old"})]


def test_webdataset_writer(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with webdataset.TarWriter(str(path)) as writer:
        for i in range(100):
            writer.write({"__key__": f"sub/{i:05d}", "txt": f"text {i}", "json": {"i": i}, "cls": i})
    assert read(path, tmp_path, block_samples=9) == reference(path)


def test_split_samples_come_out_whole(tmp_path: Path) -> None:
    order = ["0.a", "1.a", "1.b", "0.b", "2.a", "2.b", "3.a", "4.a", "3.b", "5.a", "4.b", "6.a", "5.b", "7.a"]
    path = write_tar(tmp_path / "a.tar", [(name, name.encode()) for name in order])
    index = index_of(path, cache=tmp_path, block_samples=1)
    # 0 holds 1 inside; 3 and 4, 4 and 5, 5 and 6 overlap.
    assert index.block_samples.tolist() == [2, 1, 4, 1]
    assert read(path, tmp_path, block_samples=1) == reference(path)


def naive_samples(names: list[str]) -> list[dict[str, bytes]]:
    """A member joins the latest sample of its key, unless that has its extension already."""
    samples: list[tuple[str, dict[str, bytes]]] = []
    for number, name in enumerate(names):
        key, extension = name.split(".")
        mine = [fields for other, fields in samples if other == key]
        if not mine or extension in mine[-1]:
            mine = [{}]
            samples.append((key, mine[-1]))
        mine[-1][extension] = b"%d" % number
    return [fields for _, fields in samples]


@given(
    names=st.lists(st.sampled_from([f"{key}.{kind}" for key in "abcd" for kind in "xyz"]), min_size=1, max_size=14),
    block_samples=st.integers(1, 4),
    format_=st.sampled_from(FORMATS),
)
@settings(max_examples=60)
def test_any_order_of_members(names: list[str], block_samples: int, format_: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        members = [(name, b"%d" % number) for number, name in enumerate(names)]
        path = write_tar(Path(folder) / "a.tar", members, format_=format_)
        index = index_of(path, cache=Path(folder), block_samples=block_samples)
        assert [sample.fields for sample in samples_of(index, cache=Path(folder))] == naive_samples(names)
        # Blocks are whole, in order, and don't overlap.
        bounds = [(offset, offset + size) for offset, size, *_ in tables_of(index)]
        assert all(before[1] <= after[0] for before, after in pairwise(bounds))


def test_all_of_one_kind_and_then_the_other(tmp_path: Path) -> None:
    members = [(f"{i}.{kind}", b"x") for kind in ("jpg", "txt") for i in range(200)]
    path = write_tar(tmp_path / "a.tar", members)
    index = index_of(path, cache=tmp_path)
    assert index.num_blocks == 1
    assert read(path, tmp_path) == reference(path)


def test_a_repeated_name_is_another_sample(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("a.txt", b"1"), ("b.txt", b"2"), ("a.txt", b"3"), ("a.txt", b"4")])
    for block_samples in (1, 64):
        assert [fields for _, fields in read(path, tmp_path, block_samples=block_samples)] == [
            {"txt": bytes([code])} for code in b"1234"
        ]


def test_members_without_padding_marker_or_with_garbage_behind_it(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", numbered(5))
    raw = path.read_bytes()
    whole = read(path, tmp_path)
    last = raw.rstrip(b"\0")
    end = (len(last) + 511) // 512 * 512
    for number, variant in enumerate([raw[:end], raw[: end + 512], raw + b"garbage" * 99, raw[: len(last)], last]):
        other = tmp_path / f"v{number}.tar"
        other.write_bytes(variant)
        assert read(other, tmp_path) == whole


def test_empty_shards(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"")
    write_tar(tmp_path / "b.tar", [])
    path = write_tar(tmp_path / "c.tar", [("x.txt", b"x")])
    index = index_of(tmp_path / "a.tar", tmp_path / "b.tar", path, cache=tmp_path)
    assert index.num_samples == 1
    assert index.location(0).path == str(path)
    with pytest.raises(DataError, match=r"sources\.web: 2 shards without a sample \(.*a\.tar"):
        index_of(tmp_path / "a.tar", tmp_path / "b.tar", cache=tmp_path)


def test_every_truncation_is_told_or_harmless(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [(f"{i}.{kind}", b"x" * 700) for i in range(3) for kind in ("jpg", "txt")])
    raw = path.read_bytes()
    whole = reference(path)
    member = 512 + 1024
    for cut in [
        1,
        100,
        511,
        512,
        513,
        1200,
        member + 1,
        member + 512,
        2 * member + 5,
        4 * member + 511,
        5 * member + 9,
    ]:
        other = tmp_path / f"cut-{cut}.tar"
        other.write_bytes(raw[:cut])
        with pytest.raises(DataError, match=rf"cut-{cut}\.tar: cut off at byte {cut}, .*on_bad_sample: skip"):
            index_of(other, path, cache=tmp_path)
        index = index_of(other, path, cache=tmp_path, on_truncated="skip", block_samples=1)
        kept = index.num_samples - 3
        found = samples_of(index, cache=tmp_path)[:kept]
        assert [(sample.key, sample.fields) for sample in found] == whole[:kept]
        # A sample is kept once both its members are whole and the next member's name proves that no third one comes.
        assert kept == max(0, (cut - 512) // (2 * member))
        assert index.num_dropped == cut - kept * 2 * member
    # An index made with skip doesn't hide the cut from who wants to be told.
    with pytest.raises(DataError, match="cut off"):
        index_of(tmp_path / "cut-1200.tar", path, cache=tmp_path, block_samples=1)


def test_a_truncated_split_sample_takes_its_neighbours_along(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [(name, b"x" * 100) for name in ("0.a", "1.a", "2.a", "1.b", "2.b")])
    path.write_bytes(path.read_bytes()[: 4 * 1024 + 512 + 10])
    index = index_of(path, cache=tmp_path, on_truncated="skip")
    assert [sample.key for sample in samples_of(index, cache=tmp_path)] == ["0"]


@pytest.mark.parametrize(("at", "value"), [(124, b"abc"), (124, b"-0000000010"), (257, b"XXXXX"), (148, b"000000")])
def test_a_damaged_header_names_shard_and_byte(tmp_path: Path, at: int, value: bytes) -> None:
    path = write_tar(tmp_path / "a.tar", numbered(5, size=100))
    raw = bytearray(path.read_bytes())
    second = 1024
    raw[second + at : second + at + len(value)] = value
    # Away from the fast path, where checksums are looked at.
    raw[second + 257 : second + 263] = b"ustar "
    path.write_bytes(raw)
    with pytest.raises(DataError, match=r"a\.tar: .* at byte 1024; write"):
        index_of(path, cache=tmp_path)


def test_no_tar_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(b"\x1f\x8bsomething compressed" * 100)
    with pytest.raises(DataError, match="no tar header"):
        index_of(path, cache=tmp_path)


def test_sparse_members_and_huge_extended_headers_are_refused(tmp_path: Path) -> None:
    raw = bytearray(write_tar(tmp_path / "a.tar", [("a.txt", b"x")]).read_bytes())
    for kind, why in ((b"S", "sparse"), (b"x", "extended header of")):
        raw[156:157] = kind
        raw[124:135] = b"%011o" % (1 << 30)
        raw[148:156] = b" " * 8
        raw[148:156] = b"%06o\0 " % sum(raw[:512])
        (tmp_path / "a.tar").write_bytes(raw)
        with pytest.raises(DataError, match=why):
            index_of(tmp_path / "a.tar", cache=tmp_path)


def test_some_samples_in_any_order_and_the_hash_of_the_block(tmp_path: Path) -> None:
    from zephon.config import Spill
    from zephon.formats.read import read_samples

    index = index_of(write_tar(tmp_path / "a.tar", numbered(20)), cache=tmp_path)
    everything, whole = read_samples(index.location(0), range(20), columns=None, spill=Spill(), index_dir=None)
    some, part = read_samples(index.location(0), [7, 3, 3], columns=["txt"], spill=Spill(), index_dir=None)
    assert whole == part
    assert [sample.key for sample in some] == ["000007", "000003", "000003"]
    assert some[0].fields == {"txt": everything[7].fields["txt"]}
    # Of several names, those that are there.
    (sample,), _ = read_samples(index.location(0), [0], columns=[("jpg", "txt", "png")], spill=Spill(), index_dir=None)
    assert set(sample.fields) == {"txt"}
    # A column that is missing: all are there, to be named.
    (sample,), _ = read_samples(index.location(0), [0], columns=["jpg"], spill=Spill(), index_dir=None)
    assert set(sample.fields) == {"txt", "meta.json"}


def test_the_hash_tells_changed_bytes(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", numbered(20))
    index = index_of(path, cache=tmp_path, block_samples=5)
    before = hashes_of(index, cache=tmp_path)
    raw = bytearray(path.read_bytes())
    raw[600] ^= 1
    path.write_bytes(raw)
    after = hashes_of(index, cache=tmp_path)
    assert [old == new for old, new in zip(before, after, strict=True)] == [False, True, True, True]


def test_a_shard_that_changed_under_its_index(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", numbered(20))
    index = index_of(path, cache=tmp_path)
    write_tar(path, [("other.txt", b"x" * 100_000)])
    with pytest.raises(DataError, match="changed since it was indexed"):
        samples_of(index, cache=tmp_path)
    path.write_bytes(b"short")
    with pytest.raises(DataError, match="shrank since it was indexed"):
        samples_of(index, cache=tmp_path)


@pytest.mark.parametrize("offsets", ["right", "members", "off", "late", "empty"])
def test_an_idx_never_changes_the_table(tmp_path: Path, offsets: str) -> None:
    path = write_tar(tmp_path / "a.tar", numbered(400), format_=tarfile.GNU_FORMAT)
    size = path.stat().st_size
    store = LocalStore()
    plain = list(walk(Window(store, str(path), size), 0, size))
    begins = [member[0] for member in plain][::2]
    hints = {
        "right": [*begins, size],
        "members": [member[0] for member in plain],
        "off": [begin + 512 for begin in begins],
        "late": [*begins, size + 512],
        "empty": [],
    }
    Path(f"{path}.idx").write_bytes(np.array(hints[offsets], dtype="<i8").tobytes())
    assert list(walk_in_parts(store, str(path), size, part_bytes=1 << 16)) == plain
    before = tables_of(index_of(path, cache=tmp_path / "1"))
    Path(f"{path}.idx").unlink()
    assert tables_of(index_of(path, cache=tmp_path / "2")) == before
