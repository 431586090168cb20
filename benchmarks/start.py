"""Measure how soon the first micro-batch comes: `python benchmarks/start.py [--folder bench-data] [--repeats 3]`.

Each measurement is a fresh process: 64 lanes, three sources of short documents, rows of 4,096 tokens, micro-batches
of 4, one rank, indexes built and shards in the page cache; with `--corpus images` captions with JPEGs in rows of 2,048
tokens, which benchmarks/image_data.py builds. Printed are the seconds from `iter(loader)` to the first micro-batch, the
least of the repeats, for a start and for a resume after 500 steps of 64 sequences (images: 10); and the seconds that
loading the tokenizer alone takes there, in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

import zephon

STEPS = {"text": 500, "images": 10}
BATCH = 64
BACKENDS = ("threads", "processes")
ENGINES = ("hf", "fastokens", "auto")
# Llama 3.1's, and that of the tokenizer which benchmarks/data.py trains where it can't have that one.
EOS = ("<|end_of_text|>", "<|endoftext|>")


def main() -> None:
    """Print the table, or in a process of its own, one number."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("bench-data"), help="what benchmarks/data.py built")
    parser.add_argument("--corpus", choices=tuple(STEPS), default="text")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--backends", nargs="+", default=BACKENDS, choices=BACKENDS)
    parser.add_argument("--engines", nargs="+", default=ENGINES, choices=ENGINES)
    parser.add_argument("--one", nargs=3, metavar=("WHAT", "BACKEND", "ENGINE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(one(options.folder, options.corpus, *options.one))
    else:
        table(options.folder, options.corpus, options.repeats, options.backends, options.engines)


def table(folder: Path, corpus: str, repeats: int, backends: Sequence[str], engines: Sequence[str]) -> None:
    """Measure each combination `repeats` times, in turns, and print the least of each."""
    keep_state(folder, corpus)
    print("backend    engine     cold_s  resume_s  ratio  tokenizer_s")
    for backend in backends:
        for engine in engines:
            least = dict.fromkeys(("cold", "resume", "tokenizer"), float("inf"))
            for _ in range(repeats):
                # In turns, so that what else the machine does falls on all of them.
                for what in least:
                    least[what] = min(least[what], measure(folder, corpus, what, backend, engine))
            ratio = least["resume"] / least["cold"]
            print(
                f"{backend:<10} {engine:<10} {least['cold']:6.2f} {least['resume']:9.2f} {ratio:6.2f} "
                f"{least['tokenizer']:12.2f}",
                flush=True,
            )


def measure(folder: Path, corpus: str, what: str, backend: str, engine: str) -> float:
    """Return the seconds that a fresh process says."""
    command = [sys.executable, __file__, "--folder", str(folder), "--corpus", corpus, "--one", what, backend, engine]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def one(folder: Path, corpus: str, what: str, backend: str, engine: str) -> float:
    """Return the seconds to the first micro-batch (`cold`, `resume`), or to a loaded tokenizer (`tokenizer`)."""
    config = settings(folder, corpus, backend, engine)
    if what == "tokenizer":
        from zephon.read_config import load_config
        from zephon.tokenizer import load_tokenizer

        loaded = load_config(config).tokenizer
        if loaded is None:
            raise SystemExit("the benchmark's configuration has no tokenizer")
        began = time.perf_counter()
        load_tokenizer(loaded)
        return time.perf_counter() - began
    loader = zephon.Loader(config)
    if what == "resume":
        loader.load_state_dict(msgspec.msgpack.decode(state_file(folder, corpus).read_bytes()))
    began = time.perf_counter()
    next(iter(loader))
    took = time.perf_counter() - began
    loader.close()
    return took


def settings(folder: Path, corpus: str, backend: str, engine: str) -> dict[str, Any]:
    """Return the configuration that is measured."""
    short = folder / "short"
    known = (folder / "tokenizer.json").read_text()
    sources: dict[str, Any]
    if corpus == "images":
        stage = {"kind": "image_text", "images": {"placeholder": "<|image|>", "resize": {"kind": "fixed", "size": 448}}}
        path = str(folder / "images" / "images-*.tar")
        sources = {"wallpapers": {"path": path, "weight": 1, "stage": stage, "block_samples": 8}}
        tokenizer, eos = str(folder / "images" / "tokenizer.json"), EOS[1]
    else:
        tokenizer, eos = str(folder / "tokenizer.json"), next(token for token in EOS if token in known)
        sources = {
            "manuals": {"path": str(short / "manuals-*.tar"), "weight": 0.4, "stage": {"kind": "text", "field": "txt"}},
            "languages": {
                "path": str(short / "languages-*.jsonl.zst"),
                "weight": 0.3,
                "stage": {"kind": "text", "field": "text"},
            },
            "code": {
                "path": str(short / "code-*.parquet"),
                "weight": 0.3,
                "stage": {"kind": "text", "field": "content"},
            },
        }
    return {
        "seed": 1,
        "lanes": BATCH,
        "global_batch_size": BATCH,
        "micro_batch_size": 4,
        "sequence_length": 2048 if corpus == "images" else 4096,
        "sources": sources,
        "tokenizer": {"path": tokenizer, "eos": eos, "engine": engine},
        "backend": {"kind": backend, "workers": 2},
        "device": "cpu",
    }


def state_file(folder: Path, corpus: str) -> Path:
    """Return where the state after STEPS steps is kept."""
    return folder / f"start-{corpus}.state"


def keep_state(folder: Path, corpus: str) -> None:
    """Run STEPS steps once and keep the state; the indexes are built by this too."""
    path = state_file(folder, corpus)
    config = settings(folder, corpus, "threads", "auto")
    if path.is_file() and _belongs(config, path):
        return
    print(f"running {STEPS[corpus]} steps once, for the state to resume from", file=sys.stderr)
    with zephon.Loader(config) as loader:
        batches = iter(loader)
        for _ in range(STEPS[corpus] * BATCH // 4):
            next(batches)
        state = loader.state_dict()
    partial = path.with_suffix(".partial")
    partial.write_bytes(msgspec.msgpack.encode(state))
    partial.rename(path)


def _belongs(config: dict[str, Any], path: Path) -> bool:
    try:
        zephon.Loader(config).load_state_dict(msgspec.msgpack.decode(path.read_bytes()))
    except (zephon.StateError, msgspec.MsgspecError) as error:
        print(f"{path}: {json.dumps(str(error)[:200])}", file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    main()
