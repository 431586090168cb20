"""The configurations in configs/ and the function in examples/: they parse, and they deliver rows."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
import zstandard
from pictures import picture
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import zephon

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
SPECIAL += ["<|image_pad|>", "<|vision_start|>", "<|vision_end|>"]
NUM_SAMPLES = 96
ROW = 64


def words(number: int) -> str:
    return " ".join(f"word{(number * 7 + step) % 31}" for step in range(40 + number % 9))


def page(number: int) -> str:
    return f"# Page {number}\n{words(number)}\n## Code\n```\n{words(number + 1)}\n```\n"


def turns(number: int, role: str, content: str, user: str, assistant: str, *, begin: str = "") -> list[dict[str, str]]:
    return [{role: user, content: f"{begin}word{number}?"}, {role: assistant, content: f"word{number + 1}."}]


# What a sample of each example's source has: by configuration and source.
SAMPLES: dict[str, Callable[[int], dict[str, Any]]] = {
    "text.web": lambda n: {"txt": words(n)},
    "text.code": lambda n: {"content": words(n)},
    "validation.web": lambda n: {"txt": words(n)},
    "validation.code": lambda n: {"content": words(n)},
    "demo.manuals": lambda n: {"txt": words(n)},
    "demo.languages": lambda n: {"text": words(n)},
    "demo.code": lambda n: {"content": words(n)},
    "lightning.manuals": lambda n: {"txt": words(n)},
    "lightning.languages": lambda n: {"text": words(n)},
    "lightning.code": lambda n: {"content": words(n)},
    "chat.chat": lambda n: {"messages": turns(n, "role", "content", "user", "assistant")},
    "chat.sharegpt": lambda n: {"conversations": turns(n, "from", "value", "human", "gpt")},
    "tokens.books": lambda n: {"input_ids": [n + step for step in range(50)]},
    "tokens.web": lambda n: {"bin": b"".join((n + step).to_bytes(2, "little") for step in range(50))},
    "fim.code": lambda n: {"content": words(n)},
    "function.pages": lambda n: {"text": page(n)},
    "vision.captions": lambda n: dict([picture(n), ("txt", words(n))]),
    "vision.talks": lambda n: {
        "images": [{"bytes": picture(n)[1]}],
        "messages": turns(n, "role", "content", "user", "assistant", begin="<image>"),
    },
    "vision.articles": lambda n: {"texts": [words(n), None, words(n + 1)], "images": [None, picture(n)[1], None]},
}


def write(path: Path, samples: list[dict[str, Any]]) -> None:
    """Write samples in the format that the path's name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.name.endswith(".tar"):
        with tarfile.open(path, "w") as archive:
            for number, sample in enumerate(samples):
                for field, value in sample.items():
                    data = value if isinstance(value, bytes) else value.encode()
                    info = tarfile.TarInfo(f"{number:04d}.{field}")
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))
    elif path.name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(samples), path)
    else:
        lines = "".join(json.dumps(sample) + "\n" for sample in samples).encode()
        path.write_bytes(zstandard.compress(lines) if path.name.endswith(".zst") else lines)


def small(path: Path) -> dict[str, Any]:
    """Write the shards and the tokenizer that a configuration names, here; return it with small rows and lanes."""
    raw: dict[str, Any] = yaml.safe_load(path.read_text())
    for name, source in raw["sources"].items():
        pattern = source["path"] if isinstance(source["path"], str) else source["path"][0]
        shard = Path(pattern.replace("{000..099}", "000").replace("*", "000"))
        make = SAMPLES[f"{path.stem}.{name}"]
        write(shard, [make(number) for number in range(NUM_SAMPLES)])
        # A hundred shards, one of which is here.
        source["path"] = pattern.replace("{000..099}", "{000..000}")
        source["block_samples"] = 1
    if "tokenizer" in raw:
        tokenizer = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(alphabet())}, merges=[]))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens(SPECIAL)
        Path(raw["tokenizer"]["path"]).parent.mkdir(exist_ok=True)
        tokenizer.save(raw["tokenizer"]["path"])
    row = 512 if path.stem in ("chat", "vision") else ROW
    raw.update(sequence_length=row, lanes=2, micro_batch_size=2, device="cpu", backend={"kind": "inline"})
    raw.update(length=None if raw.get("length") is None else 8)
    return raw


def alphabet() -> list[str]:
    return sorted(pre_tokenizers.ByteLevel.alphabet())


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_configuration_parses_as_it_stands(path: Path) -> None:
    config = zephon.load_config(path)
    if config.global_batch_size is not None:
        assert config.global_batch_size % config.micro_batch_size == 0


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_configuration_delivers_rows(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    raw = small(path)
    with zephon.Loader(raw) as loader:
        batches = [batch for batch, _ in zip(loader, range(4), strict=False)]
    assert [list(batch.sequences) for batch in batches] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    for batch in batches:
        assert tuple(batch["tokens"].shape) == (2, raw["sequence_length"])
        assert 0 < batch["loss_mask"].sum() <= batch["loss_mask"].numel()


def test_chat_learns_the_assistant_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    raw = small(ROOT / "configs" / "chat.yaml")
    with zephon.Loader(raw) as loader:
        batch = next(iter(loader))
    learned = batch["labels"][batch["loss_mask"] > 0].tolist()
    text = Tokenizer.from_file("tokenizer.json").decode(learned, skip_special_tokens=False)
    answers = text.split("<|im_end|>")
    assert len(answers) > 2
    assert all(answer.startswith("word") and answer.endswith(".") for answer in answers[:-1])


def test_sections_depend_on_the_sample_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from functions import sections

    fields = {"text": "".join(page(number) for number in range(20))}
    every = sections(fields, rng=zephon.SampleRandom(1))
    assert "".join(document.text or "" for document in every) == fields["text"]
    assert [document.metadata["group"] for document in every] == [0, 1] * 20
    some = sections(fields, rng=zephon.SampleRandom(1), keep=0.5)
    assert some == sections(fields, rng=zephon.SampleRandom(1), keep=0.5)
    assert some != sections(fields, rng=zephon.SampleRandom(2), keep=0.5)
    assert 0 < len(some) < len(every)
