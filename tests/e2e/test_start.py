"""How a stream starts has no effect on it, and workers start light."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_tokenizer import SPECIAL, write_small_tokenizer
from streams import BACKENDS

from zephon import Loader, stream_digest
from zephon.hashing import draw, key

WORDS = ("hello", "world", "löwe", "def f(x):", "\n\n", "12345", "日本語", " ", "it's", *SPECIAL)
# What a worker process imports for text of tar and JSONL shards, before it loads the tokenizer.
WORKER = """
import sys
import zephon.backends.child, zephon.backends.worker, zephon.stages.prepare, zephon.stages.text
import zephon.formats.tar, zephon.formats.jsonl
heavy = {"torch", "pyarrow", "yaml", "jinja2", "typer", "rich", "multiprocessing", "tokenizers", "fastokens"}
print(sorted(heavy & set(sys.modules)))
"""


def text(number: int, num_words: int) -> str:
    words = key(1, "words", number)
    return " ".join(WORDS[draw(words, place) % len(WORDS)] for place in range(num_words))


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("start")
    shard = folder / "web.jsonl"
    with shard.open("w") as file:
        for number in range(400):
            file.write(json.dumps({"text": text(number, 250)}) + "\n")
    return {
        "lanes": 2,
        "micro_batch_size": 8,
        "sequence_length": 4096,
        "length": "count",
        "device": "cpu",
        "index_dir": str(folder / "index"),
        "sources": {"web": {"path": str(shard), "stage": {"kind": "text", "field": "text"}}},
        "tokenizer": {"path": str(write_small_tokenizer(folder)), "eos": "<|endoftext|>"},
    }


def digest(config: dict[str, Any], tmp_path: Path, engine: str, backend: dict[str, Any]) -> str:
    """Return the digest of a whole pass, counted anew."""
    tokenizer = {**config["tokenizer"], "engine": engine}
    with Loader({**config, "tokenizer": tokenizer, "backend": backend, "index_dir": str(tmp_path)}) as loader:
        for _ in loader:
            pass
        return stream_digest(loader.state_dict())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_stream_is_the_same_whichever_engine_runs(
    config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    pytest.importorskip("fastokens")
    # Also for the children: none knows what another has found out.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    expected = digest(config, tmp_path / "hf", "hf", BACKENDS["inline"])
    for engine in ("auto", "fastokens"):
        # The second time with what the first has kept.
        for _ in range(2):
            assert digest(config, tmp_path / engine, engine, BACKENDS[backend]) == expected


def test_a_worker_imports_nothing_heavy_for_text() -> None:
    done = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
