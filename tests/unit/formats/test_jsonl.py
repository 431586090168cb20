"""JSON lines: plain and compressed, and lines that are no JSON."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import zstandard
from format_shards import hashes_of, index_of, samples_of, tables_of
from hypothesis import given
from hypothesis import strategies as st

from zephon.config import Spill
from zephon.errors import DataError
from zephon.formats.lines import line_bounds, whole_lines


def records(count: int, size: int = 300) -> list[dict[str, Any]]:
    return [{"text": f"{i} " + "wörd " * (size // 5), "n": i, "list": [i, None, {"a": 1.5}]} for i in range(count)]


def lines_of(values: list[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(value, ensure_ascii=bool(i % 2)).encode() + b"\n" for i, value in enumerate(values)]


def compress(raw: bytes, suffix: str) -> bytes:
    if suffix == ".gz":
        return gzip.compress(raw)
    return zstandard.compress(raw) if suffix == ".zst" else raw


def write(path: Path, raw: bytes) -> Path:
    path.write_bytes(raw)
    return path


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
@pytest.mark.parametrize("block_samples", [1, 10, 64])
def test_blocks_give_what_json_gives(tmp_path: Path, suffix: str, block_samples: int) -> None:
    values = records(230)
    path = write(tmp_path / f"a.jsonl{suffix}", compress(b"".join(lines_of(values)), suffix))
    samples = samples_of(index_of(path, cache=tmp_path, block_samples=block_samples), cache=tmp_path)
    assert [sample.fields for sample in samples] == values
    assert [sample.key for sample in samples] == [str(i) for i in range(230)]


def test_compression_changes_neither_blocks_nor_hashes(tmp_path: Path) -> None:
    raw = b"".join(lines_of(records(300)))
    indices = []
    for suffix in ("", ".gz", ".zst"):
        path = write(tmp_path / f"a.jsonl{suffix}", compress(raw, suffix))
        indices.append(index_of(path, cache=tmp_path, block_samples=20))
    assert len({index.hash for index in indices}) == 1
    assert len({tuple(hashes_of(index, cache=tmp_path)) for index in indices}) == 1
    assert len({index.num_bytes for index in indices}) == 1
    assert indices[0].num_bytes == len(raw)
    assert [indices[i].location(0).unit for i in range(3)] == [-1, 0, 0]


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_blank_lines_line_ends_and_a_missing_last_one(tmp_path: Path, suffix: str) -> None:
    raw = b'\xef\xbb\xbf{"a": 1}\r\n\n \t\r\n  {"a": 2}\n\r\n{"a": 3}\n\n\n   {"a": 4}'
    path = write(tmp_path / f"a.jsonl{suffix}", compress(raw, suffix))
    for block_samples in (1, 2, 64):
        samples = samples_of(index_of(path, cache=tmp_path, block_samples=block_samples), cache=tmp_path)
        assert [sample.fields for sample in samples] == [{"a": i} for i in (1, 2, 3, 4)]


def test_bad_lines_are_bad_samples(tmp_path: Path) -> None:
    lines = [b'{"a": 1}', b'{"a": ', b"[1, 2]", b'"text"', b'{"a": "\xff\xfe"}', b"[" * 100_000, b"null", b'{"a": 2}']
    path = write(tmp_path / "a.jsonl", b"\n".join(lines))
    samples = samples_of(index_of(path, cache=tmp_path), cache=tmp_path)
    assert [sample.error is None for sample in samples] == [True, *[False] * 6, True]
    assert samples[2].error == "no JSON object but list, where each line is to be an object"
    assert samples[5].error == "no JSON: it nests more than 128 lists and objects"
    assert all("\n" not in (sample.error or "") for sample in samples)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
def test_empty_shard(tmp_path: Path, name: str) -> None:
    raws = [b"", compress(b"", Path(name).suffix), compress(b"\n\n", Path(name).suffix)]
    other = write(tmp_path / "b.jsonl", b"{}\n")
    for raw in raws:
        path = write(tmp_path / name, raw)
        assert index_of(path, other, cache=tmp_path).num_samples == 1
        with pytest.raises(DataError, match="1 shards without a sample"):
            index_of(path, cache=tmp_path)


def frames(parts: list[bytes], *, skippable: bool) -> bytes:
    seek_table = b"\x5e\x2a\x4d\x18" + (9).to_bytes(4, "little") + b"seektable"
    return b"".join(zstandard.compress(part) + (seek_table if skippable else b"") for part in parts)


@pytest.mark.parametrize("skippable", [False, True])
def test_each_frame_is_a_unit(tmp_path: Path, skippable: bool) -> None:
    lines = lines_of(records(90))
    parts = [b"".join(lines[i : i + 30]) for i in range(0, 90, 30)]
    path = write(tmp_path / "a.jsonl.zst", frames([*parts, b""], skippable=skippable))
    index = index_of(path, cache=tmp_path, block_samples=20)
    assert index.block_samples.tolist() == [20, 10, 20, 10, 20, 10]
    assert len({unit for _, _, unit, _ in tables_of(index)}) == 3
    assert [offset for offset, *_ in tables_of(index)][::2] == [0, 0, 0]
    assert [sample.fields["n"] for sample in samples_of(index, cache=tmp_path)] == list(range(90))


def test_frames_that_part_a_line_are_one_unit(tmp_path: Path) -> None:
    raw = b"".join(lines_of(records(40)))
    middle = len(raw) // 3
    path = write(tmp_path / "a.jsonl.zst", frames([raw[:middle], raw[middle:], raw], skippable=False))
    index = index_of(path, cache=tmp_path, block_samples=16)
    units = [unit for _, _, unit, _ in tables_of(index)]
    assert units == [0] * 3 + [units[-1]] * 3
    assert units[-1] > 0
    assert [sample.fields["n"] for sample in samples_of(index, cache=tmp_path)] == [*range(40), *range(40)]


def test_compressing_anew_keeps_the_hash(tmp_path: Path) -> None:
    lines = lines_of(records(90))
    hashes = set()
    for level in (1, 19):
        parts = [zstandard.compress(b"".join(lines[i : i + 30]), level) for i in range(0, 90, 30)]
        path = write(tmp_path / f"{level}.jsonl.zst", b"".join(parts))
        hashes.add(index_of(path, cache=tmp_path).hash)
    assert len(hashes) == 1


def test_members_and_padding_of_gzip(tmp_path: Path) -> None:
    lines = lines_of(records(40))
    raw = gzip.compress(b"".join(lines[:20])) + gzip.compress(b"".join(lines[20:])) + bytes(5000)
    samples = samples_of(index_of(write(tmp_path / "a.jsonl.gz", raw), cache=tmp_path), cache=tmp_path)
    assert [sample.fields["n"] for sample in samples] == list(range(40))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("on_truncated", ["raise", "skip"])
def test_damaged_and_cut_off_streams_name_the_shard(tmp_path: Path, suffix: str, on_truncated: str) -> None:
    whole = compress(b"".join(lines_of(records(2000, size=50))), suffix)
    flipped = bytearray(whole)
    flipped[len(flipped) // 2] ^= 0x55
    for raw in (whole[: len(whole) // 2], whole[:-1], whole[:3], bytes(flipped), whole + b"garbage!"):
        path = write(tmp_path / f"a.jsonl{suffix}", raw)
        with pytest.raises(DataError, match=rf"a\.jsonl{suffix}: .*(damaged|cut off).* byte \d+"):
            index_of(path, cache=tmp_path, on_truncated=on_truncated)


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("large", [False, True])
def test_damage_after_indexing_names_the_shard(tmp_path: Path, suffix: str, large: bool) -> None:
    whole = compress(b"".join(lines_of(records(200))), suffix)
    path = write(tmp_path / f"a.jsonl{suffix}", whole)
    index = index_of(path, cache=tmp_path, block_bytes=1024 if large else 1 << 20)
    assert index.location(0).large == large
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=f"a.jsonl{suffix}: .*cut off"):
        samples_of(index, cache=tmp_path)


def test_changed_lines(tmp_path: Path) -> None:
    for name, large in (("a.jsonl", False), ("a.jsonl.zst", False), ("b.jsonl.zst", True)):
        raw = b"".join(lines_of(records(200)))
        path = write(tmp_path / name, compress(raw, Path(name).suffix))
        index = index_of(path, cache=tmp_path, block_bytes=1024 if large else 1 << 20)
        path.write_bytes(compress(raw.replace(b"w", b"\n"), Path(name).suffix))
        with pytest.raises(DataError, match=r"changed since it was indexed; .*delete the index"):
            samples_of(index, cache=tmp_path)


def test_long_lines_are_blocks_of_their_own(tmp_path: Path) -> None:
    values = [{"text": "x" * size} for size in (10, 3000, 10, 10, 5000, 10)]
    path = write(tmp_path / "a.jsonl", b"".join(lines_of(values)))
    index = index_of(path, cache=tmp_path, block_bytes=1024)
    assert index.block_samples.tolist() == [1, 1, 2, 1, 1]
    assert [sample.fields for sample in samples_of(index, cache=tmp_path)] == values


@given(
    parts=st.lists(st.lists(st.sampled_from([b"\n", b" ", b"\r", b"{}", b"[1]", b"x\n"]), max_size=8).map(b"".join)),
)
def test_lines_are_the_same_however_they_come(parts: list[bytes]) -> None:
    raw = b"".join(parts)
    found = []
    for _, portions in whole_lines((0, part) for part in parts):
        for offset, lines in portions:
            starts, ends = line_bounds(lines)
            found += [raw[offset + start : offset + end].strip() for start, end in zip(starts, ends, strict=True)]
    assert found == [line.strip() for line in raw.split(b"\n") if line.strip()]


def test_a_spilled_stream_reads_as_the_plain_one(tmp_path: Path) -> None:
    values = records(500)
    spill = Spill(dir=str(tmp_path / "spill"))
    path = write(tmp_path / "a.jsonl.gz", compress(b"".join(lines_of(values)), ".gz"))
    index = index_of(path, cache=tmp_path, block_bytes=4096)
    assert index.location(3).large
    assert index.large_total() == index.num_bytes
    samples = samples_of(index, spill=spill, cache=tmp_path)
    assert [sample.fields for sample in samples] == values
    (kept,) = (tmp_path / "spill").glob("*.unit")
    assert kept.read_bytes().startswith(b"".join(lines_of(values)))
