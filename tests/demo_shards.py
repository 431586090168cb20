"""What configs/demo.yaml and configs/lightning.yaml read, as `make demo` leaves it, but little of it."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from small_tokenizer import write_small_tokenizer


def write_demo_shards(folder: Path) -> None:
    """Write a tokenizer and a shard of each source into demo-data/ of a folder."""
    data = folder / "demo-data"
    data.mkdir()
    write_small_tokenizer(data)
    texts = [f"text {number}: " + "hello world " * (number % 60) for number in range(300)]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (data / "languages-000.jsonl.zst").write_bytes(zstandard.compress(lines.encode()))
    pq.write_table(pa.table({"content": texts}), data / "code-000.parquet")
    with tarfile.open(data / "manuals-000.tar", "w") as archive:
        for number, text in enumerate(texts):
            info = tarfile.TarInfo(f"{number:04d}.txt")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
