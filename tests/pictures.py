"""Small written streams with images: captions, conversations and interleaved documents, in tar and Parquet."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image
from small_tokenizer import make_small_tokenizer

from zephon.hashing import draw, key

# Tokens of the small tokenizer that stand in for an image's own.
PLACEHOLDER, START, END = "<|pad|>", "<|fim_prefix|>", "<|fim_suffix|>"
KINDS = ("jpg", "png", "webp", "png")
MODES = ("RGB", "L", "RGB", "RGBA")
WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "lazy",
    "dog",
    "hello",
    "world",
    "user",
    "system",
    "value",
    "return",
    "def",
]
NATIVE = {"kind": "native", "patch": 4, "merge": 2, "min_pixels": 64, "max_pixels": 1024}
FIXED = {"kind": "fixed", "size": 32, "patch": 8}


def picture(seed: int, *, kind: str | None = None, mode: str | None = None) -> tuple[str, bytes]:
    """Return an image's extension and bytes, made from a seed: 8 to 63 pixels a side."""
    draws = [draw(key(seed, "picture"), number) for number in range(4)]
    kind, mode = kind or KINDS[draws[0] % 4], mode or MODES[draws[0] % 4]
    width, height = 8 + draws[1] % 56, 8 + draws[2] % 56
    channels = len(mode) if mode in ("RGB", "RGBA") else 1
    y, x = np.mgrid[:height, :width]
    levels = [(x * (3 + c) + y * (5 - c) + draws[3] % 251) % 256 for c in range(channels)]
    pixels = np.stack(levels, axis=-1).astype(np.uint8).squeeze()
    buffer = io.BytesIO()
    Image.fromarray(pixels, mode).save(buffer, {"jpg": "JPEG"}.get(kind, kind.upper()))
    return kind, buffer.getvalue()


def words(seed: int, count: int) -> str:
    """Return so many words, drawn from a seed."""
    return " ".join(WORDS[draw(key(seed, "words"), number) % len(WORDS)] for number in range(count))


def write_captions(folder: Path, count: int, *, shards: int = 2, broken: Mapping[int, bytes] | None = None) -> str:
    """Write tar shards of image and caption; `broken` replaces the bytes of some samples' images."""
    samples = []
    for number in range(count):
        kind, data = picture(number)
        data = (broken or {}).get(number, data)
        text = words(number, 3 + draw(key(number, "length"), 0) % 20)
        samples.append({kind: data, "txt": text.encode()})
    return write_tars(folder, samples, shards=shards)


def write_conversations(folder: Path, count: int) -> str:
    """Write tar shards of conversations about one or two images each, by markers or by lists of parts."""
    samples = []
    for number in range(count):
        images = [picture(1000 + 2 * number + i, kind="jpg", mode="RGB")[1] for i in range(1 + number % 2)]
        question: Any = "<image>" * len(images) + words(number, 4)
        if number % 3 == 0:
            question = [*({"type": "image"} for _ in images), {"type": "text", "text": words(number, 4)}]
        messages = [
            {"role": "user", "content": question},
            {"role": "assistant", "content": words(number + 7, 6 + number % 9)},
        ]
        members = {f"{i}.jpg": data for i, data in enumerate(images)}
        parts = {"json": json.dumps(messages).encode()}
        # The stage reads one field, so that several images go in as one sample of Parquet; see write_parquet.
        samples.append({**members, **parts})
    rows = [
        {"images": [{"bytes": s[m], "path": m} for m in s if m.endswith("jpg")], "messages": s["json"].decode()}
        for s in samples
    ]
    return write_parquet(folder, rows)


def write_interleaved(folder: Path, count: int, *, form: str = "tar", longest: int = 5) -> str:
    """Write documents of texts and images in turn, up to `longest` images each."""
    documents: list[list[str | bytes]] = []
    for number in range(count):
        elements: list[str | bytes] = []
        for place in range(1 + draw(key(number, "images"), 0) % longest):
            elements.append(words(31 * number + place, 2 + place * 3))
            elements.append(picture(5000 + 100 * number + place, kind="png" if place % 2 else "jpg", mode="RGB")[1])
        if number % 2:
            elements.append(words(number, 9))
        documents.append(elements)
    if form == "parquet":
        rows = [
            {
                "texts": [e if isinstance(e, str) else None for e in elements],
                "images": [e if isinstance(e, bytes) else None for e in elements],
            }
            for elements in documents
        ]
        return write_parquet(folder, rows)
    samples = []
    for elements in documents:
        members: dict[str, bytes] = {}
        parts: list[dict[str, str]] = []
        for element in elements:
            if isinstance(element, str):
                parts.append({"text": element})
            else:
                members[f"{len(members)}.img"] = element
                parts.append({"image": f"{len(members) - 1}.img"})
        samples.append({**members, "json": json.dumps(parts).encode()})
    return write_tars(folder, samples)


def write_tars(folder: Path, samples: Sequence[Mapping[str, bytes]], *, shards: int = 2) -> str:
    """Write samples into tar shards and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    each = -(-len(samples) // shards)
    for shard in range(shards):
        with tarfile.open(folder / f"shard-{shard:03d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for number in range(shard * each, min((shard + 1) * each, len(samples))):
                for name, data in samples[number].items():
                    member = tarfile.TarInfo(f"{number:06d}.{name}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    return str(folder)


def write_parquet(folder: Path, rows: Sequence[Mapping[str, Any]]) -> str:
    """Write rows into a Parquet shard of small row groups and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), folder / "shard-000.parquet", row_group_size=7)
    return str(folder)


def images_of(resize: Mapping[str, Any] = NATIVE, **settings: Any) -> dict[str, Any]:
    """Return a stage's `images`."""
    return {"placeholder": PLACEHOLDER, "start": START, "end": END, "resize": dict(resize), **settings}


def picture_stream(
    folder: Path,
    *,
    sources: Sequence[str] = ("captions", "chat", "interleaved", "obelics"),
    resize: Mapping[str, Any] = NATIVE,
    images: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    count: int = 40,
) -> dict[str, Any]:
    """Write sources with images, and return a configuration of them, with more settings."""
    make_small_tokenizer().save(str(folder / "tokenizer.json"))
    look = images_of(resize, **(images or {}))
    known = {
        "captions": lambda: {
            "path": write_captions(folder / "captions", count),
            "stage": {"kind": "image_text", "images": look},
        },
        "chat": lambda: {
            "path": write_conversations(folder / "chat", count),
            "stage": {"kind": "image_text", "images": look, "image": "images", "chat": {"field": "messages"}},
        },
        "interleaved": lambda: {
            "path": write_interleaved(folder / "interleaved", count),
            "stage": {"kind": "interleaved", "images": look, "parts": "json"},
        },
        "obelics": lambda: {
            "path": write_interleaved(folder / "obelics", count, form="parquet"),
            "stage": {"kind": "interleaved", "images": look, "texts": "texts", "images_field": "images"},
        },
    }
    return {
        "seed": 7,
        "lanes": 4,
        "sequence_length": 96,
        "micro_batch_size": 2,
        "pack": {"pool": 4},
        "device": "cpu",
        "backend": {"kind": "inline", "prefetch": 0},
        "index_dir": str(folder / "index"),
        "tokenizer": {"path": str(folder / "tokenizer.json"), "eos": "<|endoftext|>", "pad": "<|fim_middle|>"},
        "sources": {name: {**known[name](), "block_samples": 4} for name in sources},
        **(settings or {}),
    }
