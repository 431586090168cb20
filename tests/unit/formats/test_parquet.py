"""Parquet: rows of one row group, whatever the encoding, in bounded memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from format_shards import hashes_of, index_of, samples_of, tables_of

from zephon.config import Spill
from zephon.errors import DataError
from zephon.formats.index import SourceIndex
from zephon.formats.parquet_spill import read_rows, write_rows
from zephon.formats.read import read_samples
from zephon.formats.unit_file import open_unit, write_unit
from zephon.formats.units import open_units


def table(count: int) -> pa.Table:
    return pa.table(
        {
            "text": [None if i % 17 == 5 else f"text {i} " + "ü" * (i % 40) for i in range(count)],
            "raw": pa.array([bytes([i % 256]) * (i % 9) for i in range(count)], pa.binary()),
            "tokens": pa.array(
                [None if i % 13 == 3 else list(range(i % 7)) for i in range(count)], pa.list_(pa.uint32())
            ),
            "lang": pa.array([("de", "en")[i % 2] for i in range(count)]).dictionary_encode(),
            "score": [i / 3 for i in range(count)],
            "meta": [{"url": f"u{i}", "n": i} for i in range(count)],
            "ok": [i % 3 == 0 for i in range(count)],
        }
    )


def write(path: Path, data: pa.Table, **options: Any) -> Path:
    pq.write_table(data, path, **options)
    return path


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def test_blocks_give_what_pyarrow_gives(tmp_path: Path) -> None:
    data = table(1000)
    path = write(tmp_path / "a.parquet", data, row_group_size=300, compression="zstd")
    for options in ({"block_samples": 1}, {}, {"block_samples": 50, "block_bytes": 1024}):
        index = index_of(path, cache=tmp_path, **options)
        samples = samples_of(index, cache=tmp_path)
        found = [{name: plain(value) for name, value in sample.fields.items()} for sample in samples]
        assert found == data.to_pylist()
        assert [sample.key for sample in samples] == [str(i) for i in range(1000)]
        for first, rows, unit, count in tables_of(index):
            assert rows == count
            assert first + rows <= min(300, 1000 - 300 * unit)


def test_types_of_values(tmp_path: Path) -> None:
    index = index_of(write(tmp_path / "a.parquet", table(20)), cache=tmp_path)
    fields = samples_of(index, columns=["tokens", "text", "raw"], cache=tmp_path)[6].fields
    assert list(fields) == ["tokens", "text", "raw"]
    assert fields["tokens"].dtype == np.uint32
    assert isinstance(fields["text"], str)
    assert isinstance(fields["raw"], bytes)


COLUMNS = {
    "ns": pa.array([1, None, 3], pa.timestamp("ns")),
    "us": pa.array([1, None, 3], pa.timestamp("us", tz="UTC")),
    "date": pa.array([1, None, 3], pa.date32()),
    "time": pa.array([1, None, 3], pa.time32("ms")),
    "duration": pa.array([1, None, 3], pa.duration("ns")),
    "decimal": pa.array([1, None, 3]).cast(pa.decimal128(30, 2)),
    "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "fixed_list": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int32(), 2)),
    "fixed_bytes": pa.array([b"ab", None, b"cd"], pa.binary(2)),
    "large": pa.array(["a", None, "c"], pa.large_string()),
    "flags": pa.array([True, None, False]),
    "nested": pa.array([[["a"], []], None, [None]], pa.list_(pa.list_(pa.string()))),
    "holes": pa.array([[1, None], None, []], pa.list_(pa.int64())),
    "half": pa.array([np.float16(1), None, np.float16(2)]),
    "nothing": pa.array([None, None, None]),
    "structs": pa.array([{"a": 1, "b": ["x"]}, None, {"a": None, "b": []}]),
    "lists_of_structs": pa.array([[{"role": "user", "n": 1}], None, []]),
    "bytes_of_numbers": pa.array([1, None, 255], pa.uint8()),
}


# A row group is small, medium or large, by how many blocks it has.
SIZES: dict[str, dict[str, int]] = {
    "small": {"block_samples": 4096},
    "medium": {"block_samples": 150},
    "large": {"block_bytes": 1024},
}


def sized_index(path: Path, size: str, cache: Path) -> SourceIndex:
    return index_of(path, cache=cache, **SIZES[size]).with_medium_spilled()


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("size", SIZES)
def test_any_type_is_read_and_hashed(tmp_path: Path, name: str, size: str) -> None:
    data = pa.table({name: pa.concat_arrays([COLUMNS[name]] * 700), "fill": ["x" * 50] * 2100})
    path = write(tmp_path / "a.parquet", data, use_dictionary=False, compression="zstd")
    index = sized_index(path, size, tmp_path)
    assert (index.location(0).medium, index.location(0).large) == (size == "medium", size == "large")
    values = [plain(sample.fields[name]) for sample in samples_of(index, columns=[name], cache=tmp_path)]
    stored = pq.read_table(path).column(name)
    if name in ("ns", "duration"):
        stored = stored.cast(pa.string())
    assert values == stored.to_pylist()
    first, *_ = hashes_of(index, columns=[name], cache=tmp_path)
    reversed_ = write(tmp_path / "b.parquet", data.take(list(range(2099, -1, -1))), use_dictionary=False)
    other, *_ = hashes_of(sized_index(reversed_, size, tmp_path), columns=[name], cache=tmp_path)
    assert (first == other) == (name == "nothing")


def test_bytes_of_row_groups_are_apportioned_exactly(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", table(1000), row_group_size=301)
    metadata = pq.read_metadata(path)
    index = index_of(path, cache=tmp_path, block_samples=7)
    assert index.num_bytes == sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))


def test_a_missing_column_names_file_columns_and_setting(tmp_path: Path) -> None:
    index = index_of(write(tmp_path / "a.parquet", table(20)), cache=tmp_path)

    def read(*columns: Any, settings: dict[str, str]) -> None:
        read_samples(
            index.location(0), [0], columns=columns, spill=Spill(), index_dir=None, source="web", settings=settings
        )

    with pytest.raises(
        DataError, match=r"a\.parquet: no column 'content' \(has: 'text', .*\); set sources\.web\.stage\.chat\.field$"
    ):
        read("text", "content", settings={"text": "text", "content": "chat.field"})
    with pytest.raises(DataError, match=r"no column 'jpg' or 'png' \(has: .*\); set sources\.web\.stage\.image$"):
        read(("jpg", "png"), settings={"jpg": "image", "png": "image"})
    with pytest.raises(DataError, match=r"no column 'content' \(has: .*\); correct web's stage$"):
        read("content", settings={})


@pytest.mark.parametrize("size", SIZES)
def test_of_several_names_those_in_the_schema_are_read(tmp_path: Path, size: str) -> None:
    path = write(tmp_path / "a.parquet", table(1000), row_group_size=500)
    index = sized_index(path, size, tmp_path)
    several = [("jpg", "raw", "png", "text"), "score"]
    found = samples_of(index, columns=several, cache=tmp_path)
    plainly = samples_of(index, columns=["raw", "text", "score"], cache=tmp_path)
    assert [(sample.key, sample.fields) for sample in found] == [(sample.key, sample.fields) for sample in plainly]
    assert hashes_of(index, columns=several, cache=tmp_path) == hashes_of(
        index, columns=["raw", "text", "score"], cache=tmp_path
    )
    for total in (index.medium_total, index.large_total):
        assert total(several) == total(["raw", "text", "score"])


def test_the_hash_is_of_values_not_of_their_layout(tmp_path: Path) -> None:
    data = table(500)
    layouts: list[dict[str, Any]] = [
        {"compression": "zstd", "use_dictionary": True},
        {"compression": "none", "use_dictionary": False, "data_page_size": 100},
        {"compression": "snappy", "store_schema": False},
    ]
    found = set()
    for number, options in enumerate(layouts):
        path = write(tmp_path / f"{number}.parquet", data, row_group_size=250, **options)
        index = index_of(path, cache=tmp_path, block_samples=25)
        assert index.num_blocks == 20
        for chosen in (index, index.with_medium_spilled()):
            found.add(tuple(hashes_of(chosen, cache=tmp_path)))
    assert len(found) == 1


def test_the_hash_tells_values_nulls_and_bounds_apart(tmp_path: Path) -> None:
    columns = [
        pa.array(["ab", "c"]),
        pa.array(["a", "bc"]),
        pa.array(["ab", None]),
        pa.array(["ab", ""]),
        pa.array([1, 0]),
        pa.array([1, None], pa.int64()),
        pa.array([1.0, 0.0]),
        pa.array([[1], [2]]),
        pa.array([[1, 2], []], pa.list_(pa.int64())),
        pa.array([[1, 2], None], pa.list_(pa.int64())),
    ]
    found = []
    for number, column in enumerate(columns):
        path = write(tmp_path / f"{number}.parquet", pa.table({"x": column}))
        found += hashes_of(index_of(path, cache=tmp_path), cache=tmp_path)
    assert len(set(found)) == len(columns)


@pytest.mark.parametrize("size", ["medium", "large"])
def test_a_row_group_goes_through_the_spill_once(tmp_path: Path, size: str) -> None:
    data = table(2000)
    path = write(tmp_path / "a.parquet", data, compression="zstd")
    index = sized_index(path, size, tmp_path)
    columns = ["text", "tokens", "lang"]
    found = samples_of(index, columns=columns, cache=tmp_path)
    (kept,) = (tmp_path / "spill").glob("*.unit")
    inode = kept.stat().st_ino
    open_units.cache_clear()
    samples_of(index, columns=columns, cache=tmp_path)
    assert [file.stat().st_ino for file in (tmp_path / "spill").glob("*.unit")] == [inode]
    expected = samples_of(index_of(path, cache=tmp_path, **SIZES["small"]), columns=columns, cache=tmp_path)
    assert [(sample.key, {name: plain(value) for name, value in sample.fields.items()}) for sample in found] == [
        (sample.key, {name: plain(value) for name, value in sample.fields.items()}) for sample in expected
    ]
    total = index.medium_total if size == "medium" else index.large_total
    assert 0 < total(["text"]) < total()
    assert index.medium_total() + index.large_total() == total()


@pytest.mark.parametrize("size", SIZES)
def test_samples_come_in_the_order_asked_for(tmp_path: Path, size: str) -> None:
    path = write(tmp_path / "a.parquet", table(1000), row_group_size=500)
    index = sized_index(path, size, tmp_path)
    for block in (0, index.num_blocks // 2, index.num_blocks - 1):
        place = index.location(block)
        orders: list[Any] = [range(place.samples), range(place.samples - 1, -1, -1), [place.samples - 1, 0], []]
        for order in orders:
            samples, _ = read_samples(place, order, columns=["score"], spill=Spill(dir=str(tmp_path)), index_dir=None)
            assert [sample.fields["score"] for sample in samples] == [(place.first + i) / 3 for i in order]
            assert [sample.key for sample in samples] == [str(place.first + i) for i in order]


@pytest.mark.parametrize("rows", [1, 7, 64, 100, 1000])
def test_chunks_give_any_rows(tmp_path: Path, rows: int) -> None:
    tables = [table(300).slice(start, 30) for start in range(0, 300, 30)]
    path = tmp_path / "a"
    with path.open("wb") as file:
        write_unit(
            file.fileno(),
            lambda out: write_rows(out, tables, ("text", "tokens"), rows),
            max_bytes=1 << 24,
            sync=False,
            shard="s",
        )
    unit = open_unit(path)
    assert unit is not None
    expected = table(300).select(["text", "tokens"])
    for first, count in ((0, 300), (0, 1), (63, 2), (64, 64), (290, 20), (299, 1), (300, 5), (5000, 1)):
        assert read_rows(unit, first, count).to_pylist() == expected.slice(first, count).to_pylist()


def test_no_column_needs_no_spill(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", table(200))
    index = sized_index(path, "large", tmp_path)
    assert [sample.fields for sample in samples_of(index, columns=[], cache=tmp_path)] == [{}] * 200
    assert not (tmp_path / "spill").exists()


@pytest.mark.parametrize("damage", ["cut", "footer", "nothing", "pages"])
@pytest.mark.parametrize("size", SIZES)
def test_damage_names_the_shard(tmp_path: Path, damage: str, size: str) -> None:
    path = write(tmp_path / "a.parquet", table(2000), compression="zstd")
    raw = bytearray(path.read_bytes())
    if damage == "cut":
        raw = raw[: len(raw) // 2]
    elif damage == "footer":
        raw[-8:-4] = b"\xff" * 4
    elif damage == "nothing":
        raw = bytearray()
    else:
        raw[4:5000] = bytes(4996)
    path.write_bytes(raw)
    with pytest.raises(DataError, match=r"a\.parquet: damaged Parquet \("):
        samples_of(sized_index(path, size, tmp_path), cache=tmp_path)


def test_fewer_rows_than_indexed(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", table(600), row_group_size=200)
    for rows in (1, 10, 64, 4096):
        write(path, table(600), row_group_size=200)
        index = index_of(path, cache=tmp_path, block_samples=rows).with_medium_spilled()
        write(path, table(100))
        with pytest.raises(DataError, match="changed since it was indexed"):
            samples_of(index, cache=tmp_path)


def test_empty_file_and_empty_row_groups(tmp_path: Path) -> None:
    empty = write(tmp_path / "a.parquet", table(0))
    other = tmp_path / "b.parquet"
    with pq.ParquetWriter(other, table(5).schema) as writer:
        writer.write_table(table(5).slice(5))
        writer.write_table(table(5))
    index = index_of(empty, other, cache=tmp_path)
    assert index.num_samples == 5
    assert len(samples_of(index, cache=tmp_path)) == 5


MEMORY = """
import resource, sys
from zephon.config import Source, Spill
from zephon.formats.index import build_index
from zephon.formats.read import read_samples
path, folder = sys.argv[1:]
index = build_index("web", Source(path=path), index_dir=folder)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for block in (index.num_blocks - 1, 0, index.num_blocks // 2):
    samples, _ = read_samples(index.location(block), [0], columns=["text"], spill=Spill(dir=folder), index_dir=folder)
    assert len(samples[0].fields["text"]) == 50_000
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_one_big_row_group_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    text = np.random.RandomState(0).bytes(50_000).hex()[:50_000]
    with pq.ParquetWriter(path, pa.schema({"text": pa.string()}), compression="zstd", use_dictionary=False) as writer:
        # 120 MB of text in one row group.
        writer.write_table(pa.table({"text": [text[i % 500 :] + text[: i % 500] for i in range(2400)]}))
    assert pq.read_metadata(path).num_row_groups == 1
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(path), str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 60, f"{done.stdout} MB for a row group of 120 MB"
