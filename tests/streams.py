"""Small written streams: token sources made by code, and the configuration that reads them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corpus import stage_of, write_source
from oracle_plan import Doc

from zephon import Batch, Loader
from zephon.hashing import draw, key

BACKENDS = {
    "inline": {"kind": "inline", "prefetch": 0},
    "threads": {"kind": "threads", "workers": 2, "prefetch": 2},
    "processes": {"kind": "processes", "workers": 2, "prefetch": 2},
}


def samples(name: str, count: int, *, longest: int = 40, empty: int = 0, masked: bool = False) -> list[list[Doc]]:
    """Return samples of one document of 1..`longest` tokens; the last `empty` of them have none."""
    lengths, tokens = key(1, "lengths", name), key(1, "tokens", name)
    made: list[list[Doc]] = []
    for number in range(count - empty):
        size = 1 + draw(lengths, number) % longest
        ids = tuple(1 + draw(tokens, 10_000 * number + place) % 49_999 for place in range(size))
        made.append([Doc(tokens=ids, mask=tuple(token % 2 for token in ids) if masked else None)])
    return made + [[] for _ in range(empty)]


def stream(
    folder: Path,
    *,
    sources: Mapping[str, list[list[Doc]]] | None = None,
    form: str = "jsonl",
    masked: bool = False,
    settings: Mapping[str, Any] | None = None,
    per_source: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Write sources (two by default, in two shards each) and return a configuration of them, with more settings."""
    if sources is None:
        sources = {"code": samples("code", 90, masked=masked), "web": samples("web", 150, masked=masked)}
    described = {}
    for name, made in sources.items():
        half = (len(made) + 1) // 2
        shards = [part for part in (made[:half], made[half:]) if part]
        described[name] = {
            "path": write_source(folder / name, shards, form=form, flat=True),
            "stage": stage_of(form, flat=True, masked=masked),
            "block_samples": 4,
            **(per_source or {}).get(name, {}),
        }
    return {
        "seed": 5,
        "lanes": 4,
        "sequence_length": 32,
        "pack": {"pool": 4},
        "device": "cpu",
        "backend": BACKENDS["inline"],
        "index_dir": str(folder / "index"),
        "sources": described,
        **(settings or {}),
    }


def take(loader: Loader, count: int) -> list[Batch]:
    """Return the next `count` batches."""
    iterator = iter(loader)
    return [next(iterator) for _ in range(count)]


def rows(batches: list[Batch]) -> list[tuple[int, list[int], list[int]]]:
    """Return (sequence, tokens, loss mask) of each row of some batches."""
    return [
        (sequence, batch["tokens"][place].tolist(), batch["loss_mask"][place].tolist())
        for batch in batches
        for place, sequence in enumerate(batch.sequences)
    ]
