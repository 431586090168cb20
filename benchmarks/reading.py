"""Measure what reading costs, a document: `python benchmarks/reading.py [--folder bench-data/long] [--repeats 5]`.

The first 16 MiB of the corpus's documents (made-up ones where there is no corpus) are written as shards of each
format, as they are met with: a tar, plain JSON lines, one zstd frame, Parquet with row groups of 1,000 rows. Their
blocks are read whole in a permuted order, as the engine does, by one thread, with the shards in the page cache:

decoded  nothing is kept: each block decodes its unit, which is what reading costs without the spill
spilled  units lie in the spill, nothing is kept in memory
bare     the documents straight through, with pyarrow, msgspec and zstandard: no blocks, no order, no hash

Printed is the least of the repeats, in microseconds a document, and the ratio to the bare loop.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from zephon.config import Source, Spill
from zephon.formats.cache import decoded
from zephon.formats.index import build_index
from zephon.formats.read import read_samples
from zephon.hashing import draw, key
from zephon.page import Location
from zephon.permute import order

CORPUS_BYTES = 16 << 20
ROW_GROUP = 1000
FIELDS = {"tar": "txt", "jsonl": "text", "jsonl.zst": "text", "parquet": "text"}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("bench-data/long"), help="what benchmarks/data.py built")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    texts = list(first(corpus(options.folder) if options.folder.is_dir() else made_up(), CORPUS_BYTES))
    size = sum(len(text.encode()) for text in texts)
    origin = options.folder if options.folder.is_dir() else "made up"
    print(f"{len(texts)} documents of {size // len(texts)} bytes on average ({origin})")
    print("format      blocks  decoded  ratio  spilled  ratio     bare")
    with tempfile.TemporaryDirectory() as temporary:
        for form in FIELDS:
            path = Path(temporary) / f"shard.{form}"
            WRITE[form](path, texts)
            measure(path, form, len(texts), options.repeats)


def measure(path: Path, form: str, num_texts: int, repeats: int) -> None:
    """Print a format's row; its documents are checked against the bare loop's."""
    index = build_index("web", Source(path=str(path)), index_dir=str(path.parent))
    spill = Spill(dir=str(path.parent / "spill"))
    scale = 1e6 / num_texts
    bare = scale * least(lambda: BARE[form](path), repeats)
    spilling = [index.with_medium_spilled().location(block) for block in range(index.num_blocks)]
    decoding = [msgspec.structs.replace(place, medium=False, large=False) for place in spilling]
    if len({BARE[form](path), read(decoding, form, spill), read(spilling, form, spill)}) != 1:
        raise SystemExit(f"{form}: the documents read differ")
    plain = scale * least(lambda: read(decoding, form, spill), repeats)
    # Where nothing has to be decoded, there is nothing to spill.
    shown = f"{'-':>8} {'-':>6}"
    if spilling != decoding:
        spilled = scale * least(lambda: read(spilling, form, spill), repeats)
        shown = f"{spilled:8.1f} {spilled / bare:6.2f}"
    print(f"{form:<10} {index.num_blocks:7} {plain:8.1f} {plain / bare:6.2f} {shown} {bare:8.1f}", flush=True)


def least(run: Callable[[], int], repeats: int) -> float:
    """Return the seconds of the quickest run."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def read(places: Sequence[Location], form: str, spill: Spill) -> int:
    """Read all blocks in a permuted order, each with nothing kept from before; return the characters of all."""
    field = FIELDS[form]
    characters = 0
    for block in order(key(0, "blocks", "web", 0), len(places)):
        decoded.cache_clear()
        samples, _ = read_samples(
            places[block],
            order(key(0, "samples", "web", 0, block), places[block].samples),
            columns=(field,),
            spill=spill,
            index_dir=None,
        )
        values = [sample.fields[field] for sample in samples]
        characters += sum(len(value if isinstance(value, str) else value.decode()) for value in values)
    return characters


def bare_tar(path: Path) -> int:
    """Walk plain headers and take the members' bytes."""
    characters = 0
    with path.open("rb", buffering=1 << 20) as file:
        while (size := file.read(512)[124:135]).strip(b"\0"):
            num_bytes = int(size, 8)
            characters += len(file.read(num_bytes + 511 & -512)[:num_bytes].decode())
    return characters


def bare_lines(file: io.BufferedIOBase) -> int:
    decode = msgspec.json.Decoder().decode
    return sum(len(decode(line)["text"]) for line in file)


def bare_jsonl(path: Path) -> int:
    """Decode line by line."""
    with path.open("rb", buffering=1 << 20) as file:
        return bare_lines(file)


def bare_zstd(path: Path) -> int:
    """Decompress at once, then decode line by line."""
    return bare_lines(io.BytesIO(zstandard.decompress(path.read_bytes())))


def bare_parquet(path: Path) -> int:
    """Take the column as Python strings, a row group at a time."""
    file = pq.ParquetFile(path)
    groups = range(file.num_row_groups)
    tables = (file.read_row_group(group, columns=["text"], use_threads=False) for group in groups)
    return sum(len(text) for table in tables for text in table.column("text").to_pylist())


def write_tar(path: Path, texts: list[str]) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for number, text in enumerate(texts):
            info = tarfile.TarInfo(f"{number:07d}.txt")
            data = text.encode()
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def lines(texts: list[str]) -> bytes:
    return "".join(
        json.dumps({"text": text, "id": i}, ensure_ascii=False) + "\n" for i, text in enumerate(texts)
    ).encode()


def write_parquet(path: Path, texts: list[str]) -> None:
    table = pa.table({"text": texts, "id": list(range(len(texts)))})
    pq.write_table(table, path, row_group_size=ROW_GROUP, compression="zstd")


def corpus(folder: Path) -> Iterator[str]:
    """Yield documents of the three kinds in turn."""
    tars, zsts, parquets = (sorted(folder.glob(pattern)) for pattern in ("*.tar", "*.jsonl.zst", "*.parquet"))
    with tarfile.open(tars[0]) as archive:
        members = (member for member in archive if member.name.endswith(".txt"))
        manuals = [file.read().decode() for file in map(archive.extractfile, members) if file is not None]
    with zstandard.open(zsts[0], "rb") as file:
        languages = [json.loads(line)["text"] for line in file.read().splitlines()]
    code = pq.read_table(parquets[0], columns=["content"]).column(0).to_pylist()
    for three in zip(manuals, languages, code, strict=False):
        yield from three


def made_up() -> Iterator[str]:
    """Yield documents of 7 KB of words that are always the same."""
    chance = key(0, "benchmark", "reading")
    for number in range(CORPUS_BYTES // 6_000):
        yield " ".join(f"word{draw(chance, number << 12 | i) % 5000}" for i in range(800))


def first(texts: Iterator[str], max_bytes: int) -> Iterator[str]:
    """Yield texts until they have `max_bytes`."""
    size = 0
    for text in texts:
        size += len(text.encode())
        if size > max_bytes:
            return
        yield text


WRITE: dict[str, Callable[[Path, list[str]], object]] = {
    "tar": write_tar,
    "jsonl": lambda path, texts: path.write_bytes(lines(texts)),
    "jsonl.zst": lambda path, texts: path.write_bytes(zstandard.compress(lines(texts), 3)),
    "parquet": write_parquet,
}
BARE: dict[str, Callable[[Path], int]] = {
    "tar": bare_tar,
    "jsonl": bare_jsonl,
    "jsonl.zst": bare_zstd,
    "parquet": bare_parquet,
}


if __name__ == "__main__":
    main()
