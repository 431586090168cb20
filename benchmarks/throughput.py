"""Delivered tokens a second, as a ratio to the bare loop of parsing and tokenizing on the same cores.

`python benchmarks/throughput.py --engine hf|fastokens [--backend processes] [--corpus long] [--repeats 3]`

Bare: a pool of threads, each reading shards straight through and tokenizing 64 documents at a time; nothing
else. Zephon: micro-batches [4, 4096] of CPU tensors from three sources, 64 lanes, best_fit, dp 1; measured
after the lanes have filled, because what is read ahead then stays equal. Both are measured in processes of
their own, in turn, and the medians compared. Needs bench-data/ (benchmarks/data.py builds it).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DATA = Path("bench-data")
EOS = {"llama": "<|end_of_text|>", "trained": "<|endoftext|>"}
DOCUMENTS = 64


def main() -> None:
    arguments = read_arguments()
    if arguments.measure:
        measured = bare(arguments) if arguments.measure == "bare" else zephon(arguments)
        print(json.dumps(measured))
        return
    results: dict[str, list[dict[str, float]]] = {"bare": [], "zephon": []}
    for _ in range(arguments.repeats):
        for kind, found in results.items():
            command = [sys.executable, __file__, *sys.argv[1:], "--measure", kind]
            found.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    rates = {kind: statistics.median(one["mtok_s"] for one in found) for kind, found in results.items()}
    last = results["zephon"][-1]
    for kind, runs in results.items():
        print(f"{kind}: {', '.join(format(one['mtok_s'], '.2f') for one in runs)} Mtok/s")
    print(
        f"engine={arguments.engine} backend={arguments.backend} workers={arguments.workers} lanes={arguments.lanes} "
        f"corpus={arguments.corpus} ({last['tokens_a_document']:.0f} tokens a document): "
        f"bare {rates['bare']:.2f}, zephon {rates['zephon']:.2f} Mtok/s, ratio {rates['zephon'] / rates['bare']:.2f}; "
        f"rows {100 * last['packing']:.1f} % full, {last['rss_gb']:.2f} GB resident in the trainer's process"
    )


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("hf", "fastokens"), default="fastokens")
    parser.add_argument("--backend", choices=("threads", "processes", "inline"), default="processes")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lanes", type=int, default=64)
    parser.add_argument("--loop", choices=("thread", "process"), default="thread", help="zephon's `engine`")
    parser.add_argument("--corpus", choices=("long", "short"), default="long")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--warm-rows", type=int, default=0, help="rows before the clock starts; 0: 160 a lane")
    parser.add_argument("--measure", choices=("bare", "zephon"), help=argparse.SUPPRESS)
    return parser.parse_args()


def documents(path: Path) -> Iterator[str]:
    """Yield a shard's texts with the fastest plain readers there are."""
    if path.suffix == ".tar":
        yield from tar_texts(path.read_bytes())
    elif path.suffix == ".zst":
        import io

        import msgspec
        import zstandard

        decoder = msgspec.json.Decoder(dict[str, str])
        for line in io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(path.open("rb"))):
            yield decoder.decode(line)["text"]
    else:
        import pyarrow.parquet

        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(DOCUMENTS, columns=["content"]):
            yield from batch.column(0).to_pylist()


def tar_texts(data: bytes) -> Iterator[str]:
    """Yield the texts of a plain tar's regular members."""
    place = 0
    while place + 512 <= len(data) and data[place]:
        size = int(data[place + 124 : place + 136].rstrip(b"\0 "), 8)
        if data[place + 156 : place + 157] in (b"0", b"\0"):
            yield data[place + 512 : place + 512 + size].decode()
        place += 512 + -(-size // 512) * 512


def bare(arguments: argparse.Namespace) -> dict[str, float]:
    os.environ["FASTOKENS_BPE_THREADS"] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    shards = sorted((DATA / arguments.corpus).glob("*"))
    shards = [shard for shard in shards if shard.suffix in (".tar", ".zst", ".parquet")]
    # Every third shard in turn, so that a run cut short sees all three kinds.
    shards = [shard for kind in range(len(shards)) for shard in shards[kind :: len(shards) // 3 or 1]][: len(shards)]
    if arguments.engine == "hf":
        from tokenizers import Tokenizer

        tokenizer: Any = Tokenizer.from_file(str(DATA / "tokenizer.json"))

        def count(texts: list[str]) -> int:
            return sum(len(one) for one in tokenizer.encode_batch_fast(texts, add_special_tokens=False))
    else:
        import fastokens

        fast = fastokens.Tokenizer.from_file(str(DATA / "tokenizer.json"))

        def count(texts: list[str]) -> int:
            return len(fast.encode_batch_flat(texts)[0]) // 4

    lock, totals = threading.Lock(), [0, 0]
    deadline = time.perf_counter() + (3600 if arguments.engine == "fastokens" else arguments.seconds)

    def work() -> None:
        while True:
            with lock:
                if not shards:
                    return
                shard = shards.pop(0)
            texts: list[str] = []
            tokens = done = 0
            for text in documents(shard):
                texts.append(text)
                if len(texts) == DOCUMENTS:
                    tokens, done, texts = tokens + count(texts), done + DOCUMENTS, []
                    if time.perf_counter() > deadline:
                        break
            else:
                tokens, done = tokens + (count(texts) if texts else 0), done + len(texts)
            with lock:
                totals[0] += tokens
                totals[1] += done
                if time.perf_counter() > deadline:
                    shards.clear()

    threads = [threading.Thread(target=work) for _ in range(arguments.workers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"mtok_s": totals[0] / (time.perf_counter() - began) / 1e6, "tokens_a_document": totals[0] / totals[1]}


def zephon(arguments: argparse.Namespace) -> dict[str, float]:
    import resource

    from zephon import Loader

    about = json.loads((DATA / "corpus.json").read_text())
    kinds = {"manuals": ("tar", "txt"), "languages": ("jsonl.zst", "text"), "code": ("parquet", "content")}
    size = about["documents"][arguments.corpus]
    config = {
        "seed": 1,
        "lanes": arguments.lanes,
        "global_batch_size": 64,
        "micro_batch_size": 4,
        "sequence_length": 4096,
        "sources": {
            name: {
                "path": str(DATA / arguments.corpus / f"{name}-*.{suffix}"),
                # As the bare loop meets them: in proportion to what there is.
                "weight": str(size[name]["documents"] * size[name]["mean_tokens"]),
                "stage": {"kind": "text", "field": field},
            }
            for name, (suffix, field) in kinds.items()
        },
        "tokenizer": {
            "path": str(DATA / "tokenizer.json"),
            "eos": EOS["llama" if about["tokenizer"].startswith("llama") else "trained"],
            "engine": arguments.engine,
        },
        "backend": {"kind": arguments.backend, "workers": arguments.workers},
        "engine": arguments.loop,
        "device": "cpu",
        "index_dir": str(DATA / "index"),
    }
    warm = arguments.warm_rows or 160 * arguments.lanes
    with Loader(config) as loader:
        batches = iter(loader)
        while loader.consumed < warm:
            next(batches)
        before, began = loader.report(), time.perf_counter()
        while time.perf_counter() < began + arguments.seconds:
            next(batches)
        took, after = time.perf_counter() - began, loader.report()
    tokens = after["tokens"] - before["tokens"]
    return {
        "mtok_s": tokens / took / 1e6,
        "tokens_a_document": tokens / (after["documents"] - before["documents"]),
        "packing": after["packing_efficiency"],
        "rss_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


if __name__ == "__main__":
    main()
