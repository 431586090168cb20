"""Train the demo's tokenizer: a byte-level BPE on a sample of its shards."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import zstandard
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 8_192
EOS = "<|endoftext|>"
SAMPLE_BYTES = 3_000_000


def train_tokenizer(folder: Path) -> Path:
    """Return the path of tokenizer.json, trained on about 3 MB of each source where it isn't there yet."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=[EOS],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(sample(folder), trainer=trainer)
        partial = path.with_suffix(".partial")
        tokenizer.save(str(partial))
        partial.rename(path)
    return path


def sample(folder: Path) -> Iterator[str]:
    """Yield about 3 MB of text of each source, from the starts of its shards."""
    for read, pattern in ((_tar, "*.tar"), (_jsonl, "*.jsonl.zst"), (_parquet, "*.parquet")):
        shards = sorted(folder.glob(pattern))
        for shard in shards:
            room = SAMPLE_BYTES // len(shards)
            for text in read(shard):
                room -= len(text)
                if room < 0:
                    break
                yield text


def _tar(path: Path) -> Iterator[str]:
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if member.name.endswith(".txt") and file is not None:
                yield file.read().decode()


def _jsonl(path: Path) -> Iterator[str]:
    decompressor = zstandard.ZstdDecompressor()
    with path.open("rb") as file, decompressor.stream_reader(file, read_across_frames=True) as stream:
        yield from (json.loads(line)["text"] for line in io.TextIOWrapper(stream, encoding="utf-8"))


def _parquet(path: Path) -> Iterator[str]:
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(columns=["content"]):
            yield from batch.column(0).to_pylist()
