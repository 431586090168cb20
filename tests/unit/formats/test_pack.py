"""Packing: all samples, in order, in blocks that can be read by themselves."""

from __future__ import annotations

import gzip
import json
from hashlib import sha512
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from format_shards import index_of, samples_of, write_tar

from zephon.errors import ConfigError, DataError
from zephon.formats.pack import pack


def lines(count: int) -> list[bytes]:
    # Digests don't compress away.
    return [json.dumps({"text": f"ü {sha512(b'%d' % i).hexdigest()}", "n": [i]}).encode() for i in range(count)]


def found(paths: list[str], cache: Path, **source: Any) -> list[Any]:
    index = index_of(*map(Path, paths), cache=cache, **source)
    assert not any(index.location(block).large for block in range(index.num_blocks))
    return samples_of(index, cache=cache)


def test_jsonl_stays_byte_for_byte(tmp_path: Path) -> None:
    raw = lines(1000)
    raw[500] = b'{"bad": '
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n".join(raw)))
    written = pack(str(path), tmp_path / "out", shard_bytes=8000)
    assert len(written) > 1
    assert all(Path(name).stat().st_size < 16_000 for name in written)
    samples = found(written, tmp_path)
    original = samples_of(index_of(path, cache=tmp_path), cache=tmp_path)
    assert [(sample.fields, sample.error) for sample in samples] == [
        (sample.fields, sample.error) for sample in original
    ]
    index = index_of(*map(Path, written), cache=tmp_path)
    assert len({(index.location(i).path, index.location(i).unit) for i in range(index.num_blocks)}) == index.num_blocks


def test_jsonl_to_tar(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join([*lines(100), b"{}", b'{"text": null, "n": 1}']))
    samples = found(pack([str(path)], tmp_path / "out", format="tar"), tmp_path)
    assert len(samples) == 102
    for sample, line in zip(samples, lines(100), strict=False):
        value = json.loads(line)
        assert sample.fields == {"text": value["text"].encode(), "n": json.dumps(value["n"]).encode()}
    assert samples[100].fields == {"json": b"{}"}
    assert samples[101].fields == {"n": b"1"}


def test_tar_to_tar_makes_split_samples_neighbours(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [(f"d/{i}.{kind}", b"x" * i) for kind in ("jpg", "txt") for i in range(200)])
    written = pack(str(path), tmp_path / "out", shard_bytes=100_000)
    samples = found(written, tmp_path)
    assert [(sample.key, sample.fields) for sample in samples] == [
        (f"d/{i}", {"jpg": b"x" * i, "txt": b"x" * i}) for i in range(200)
    ]
    assert index_of(*map(Path, written), cache=tmp_path, block_samples=10).num_blocks >= 20


def test_equal_names_of_different_shards_stay_apart(tmp_path: Path) -> None:
    a = write_tar(tmp_path / "a.tar", [("0.txt", b"a"), ("1.txt", b"a")])
    b = write_tar(tmp_path / "b.tar", [("0.jpg", b"b"), ("1.jpg", b"b")])
    samples = found(pack([str(a), str(b)], tmp_path / "out"), tmp_path)
    assert [sample.fields for sample in samples] == [{"txt": b"a"}, {"txt": b"a"}, {"jpg": b"b"}, {"jpg": b"b"}]


def test_tar_to_jsonl(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("0.txt", "tëxt".encode()), ("1.txt", b"\xff")])
    with pytest.raises(DataError, match=r"a\.tar, sample 1: 'txt' holds bytes .* pack as tar"):
        pack(str(path), tmp_path / "out", format="jsonl.zst")
    assert list((tmp_path / "out").iterdir()) == []
    write_tar(path, [("0.txt", "tëxt".encode())])
    samples = found(pack(str(path), tmp_path / "out", format="jsonl.zst"), tmp_path)
    assert [sample.fields for sample in samples] == [{"__key__": "0", "txt": "tëxt"}]


def test_parquet(tmp_path: Path) -> None:
    data = pa.table(
        {
            "text": [f"text {i}" for i in range(500)],
            "tokens": pa.array([[i, i + 1] for i in range(500)], pa.list_(pa.uint32())),
        }
    )
    pq.write_table(data, tmp_path / "a.parquet")
    samples = found(pack(str(tmp_path / "a.parquet"), tmp_path / "lines"), tmp_path)
    assert [sample.fields for sample in samples] == data.to_pylist()
    samples = found(pack(str(tmp_path / "a.parquet"), tmp_path / "tar", format="tar"), tmp_path)
    assert [json.loads(sample.fields["tokens"]) for sample in samples] == data["tokens"].to_pylist()


def test_equal_input_gives_equal_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(lines(300)))
    for kind in ("tar", "jsonl.zst"):
        outputs = [
            [
                Path(name).read_bytes()
                for name in pack(str(path), tmp_path / f"{kind}-{n}", format=kind, shard_bytes=9000)
            ]
            for n in range(2)
        ]
        assert outputs[0] == outputs[1]


def test_what_a_format_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for line, why in ((b'{"a/b": 1}', "can't name a tar member"), (b"no json", "pack as jsonl.zst")):
        path.write_bytes(line)
        with pytest.raises(DataError, match=rf"a\.jsonl, sample 0: .*{why}"):
            pack(str(path), tmp_path / "out", format="tar")
    data = pa.table({"x": pa.array([b"\xff\xfe"])})
    pq.write_table(data, tmp_path / "a.parquet")
    with pytest.raises(DataError, match="pack as tar"):
        pack(str(tmp_path / "a.parquet"), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_folder_with_shards_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{}")
    pack(str(path), tmp_path / "out")
    with pytest.raises(ConfigError, match="exists already"):
        pack(str(path), tmp_path / "out")
    with pytest.raises(ConfigError, match="no format 'zip'"):
        pack(str(path), tmp_path / "other", format="zip")  # type: ignore[arg-type]


def test_numbers_of_numpy(tmp_path: Path) -> None:
    data = pa.table({"x": pa.array([np.float32(0.5)]), "d": pa.array([[1.5, None]])})
    pq.write_table(data, tmp_path / "a.parquet")
    samples = found(pack(str(tmp_path / "a.parquet"), tmp_path / "out"), tmp_path)
    assert [sample.fields for sample in samples] == data.to_pylist()
