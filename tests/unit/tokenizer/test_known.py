"""What is known of a tokenizer.json spares time and changes nothing; what isn't sure is found out again."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from xxhash import xxh3_64_digest

from zephon.config import Tokenizer
from zephon.tokenizer import load, load_tokenizer, tokenizer_plan
from zephon.tokenizer.engines import fastokens_version, hf_version
from zephon.tokenizer.file import read_tokenizer_file
from zephon.tokenizer.known import keep, recall

TEXTS = ["some text", "<|endoftext|>", "Ünï"]


def config(path: Path, engine: str = "fastokens", **special: str) -> Tokenizer:
    return msgspec.convert({"path": str(path), "engine": engine, **special}, Tokenizer)


@pytest.fixture
def hf_loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that Hugging Face's engine has loaded."""
    loads: list[str] = []
    engine = load.hf_engine

    def counted(file: load.TokenizerFile) -> object:
        loads.append(file.path)
        return engine(file)

    monkeypatch.setattr(load, "hf_engine", counted)
    return loads


def test_a_tested_engine_is_loaded_alone(tokenizer_path: Path, hf_loads: list[str]) -> None:
    pytest.importorskip("fastokens")
    first = load_tokenizer(config(tokenizer_path))
    assert len(hf_loads) == 1
    second = load_tokenizer(config(tokenizer_path))
    assert len(hf_loads) == 1
    assert [array.tolist() for array in first.encode_batch(TEXTS)] == [
        array.tolist() for array in second.encode_batch(TEXTS)
    ]
    facts = ("engine", "eos_id", "bos_id", "pad_id", "vocab_size", "joins")
    assert [getattr(first, name) for name in facts] == [getattr(second, name) for name in facts]


def test_the_plan_and_the_file_are_the_same_known_or_not(tokenizer_path: Path) -> None:
    for special in ({}, {"eos": "<|endoftext|>"}, {"eos": "<|im_end|>", "bos": "<|im_start|>", "pad": "<|pad|>"}):
        settings = config(tokenizer_path, "hf", **special)
        new, plan = read_tokenizer_file(settings), tokenizer_plan(settings)
        assert new.known is None
        load_tokenizer(settings)
        known = read_tokenizer_file(settings)
        assert known.known is not None
        assert tokenizer_plan(settings) == plan
        assert msgspec.structs.replace(known, known=None) == new
        assert known.vocabulary == new.vocabulary


def test_other_bytes_are_another_file(tokenizer_path: Path, tmp_path: Path) -> None:
    load_tokenizer(config(tokenizer_path, "hf"))
    other = tmp_path / "tokenizer.json"
    other.write_bytes(tokenizer_path.read_bytes() + b"\n")
    assert read_tokenizer_file(config(other, "hf")).known is None


@pytest.mark.parametrize("field", ["tokenizers", "fastokens", "probe"])
def test_another_version_is_tested_again(tokenizer_path: Path, hf_loads: list[str], field: str) -> None:
    pytest.importorskip("fastokens")
    settings = config(tokenizer_path)
    load_tokenizer(settings)
    file = read_tokenizer_file(settings)
    assert file.known is not None
    assert (file.known.tokenizers, file.known.fastokens) == (hf_version(), fastokens_version())
    keep(file.hash, settings, msgspec.structs.replace(file.known, **{field: "0.0.1"}))
    load_tokenizer(settings)
    assert len(hf_loads) == 2
    # And kept.
    load_tokenizer(settings)
    assert len(hf_loads) == 2


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "another shape"])
def test_a_damaged_file_counts_as_absent(tokenizer_path: Path, cache: Path, damage: str) -> None:
    settings = config(tokenizer_path, "hf", eos="<|endoftext|>")
    plan = tokenizer_plan(settings)
    load_tokenizer(settings)
    (kept,) = cache.iterdir()
    raw = kept.read_bytes()
    if damage == "cut":
        kept.write_bytes(raw[:-1])
    elif damage == "flipped":
        kept.write_bytes(raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:])
    elif damage == "empty":
        kept.write_bytes(b"")
    else:
        body = msgspec.msgpack.encode({"eos_id": "x"})
        kept.write_bytes(xxh3_64_digest(body) + body)
    assert read_tokenizer_file(settings).known is None
    assert tokenizer_plan(settings) == plan
    load_tokenizer(settings)
    assert kept.read_bytes() == raw


def test_a_cache_that_cannot_be_written_is_done_without(
    tokenizer_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    settings = config(tokenizer_path, "auto", eos="<|endoftext|>")
    tokenizer = load_tokenizer(settings)
    assert tokenizer.eos_id == read_tokenizer_file(settings).eos_id
    assert recall(read_tokenizer_file(settings).hash, settings) is None


def test_nothing_is_left_but_one_small_file_for_a_file(tokenizer_path: Path, cache: Path) -> None:
    before = sorted(tokenizer_path.parent.iterdir())
    for engine in ("hf", "auto", "hf"):
        load_tokenizer(config(tokenizer_path, engine))
    (kept,) = cache.iterdir()
    assert kept.stat().st_size < 500
    assert sorted(tokenizer_path.parent.iterdir()) == before
