"""The plans whose streams are golden: token sources made by code, so that no tokenizer's version matters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streams import samples, stream

from zephon import Loader, stream_digest

FILE = Path(__file__).parent / "streams.json"
POSITIONS = (1, 10, 60)

THREE = {
    "sources": ("code", "math", "web"),
    "per_source": {"code": {"weight": 0.3}, "math": {"weight": "0.05"}, "web": {"weight": 0.65}},
}
PLANS: dict[str, dict[str, Any]] = {
    "best_fit": {},
    "best_fit_split": {"settings": {"pack": {"kind": "best_fit_split", "pool": 6}}},
    "first_fit": {"settings": {"pack": {"kind": "first_fit", "pool": 6}}},
    "concat": {"settings": {"pack": {"kind": "concat"}, "mask_boundary": False}},
    "pad": {"settings": {"pack": {"kind": "pad"}}},
    "truncate and align": {"settings": {"pack": {"long": "truncate", "align": 8, "pool": 9}}},
    "drop, one lane": {"settings": {"pack": {"long": "drop", "pool": 3}, "lanes": 1, "spread": 1}},
    "mixture": THREE,
    "mixture by samples, many lanes": {**THREE, "settings": {"lanes": 12, "mix": {"by": "samples"}, "seed": 99}},
    "schedule": {
        **THREE,
        "settings": {
            "mix": {
                "schedule": [
                    {"from": 8, "weights": {"math": 1}},
                    {"from": 24, "weights": {"code": 0.5, "math": 0.1, "web": "0.4"}},
                ]
            }
        },
    },
    "homogeneous and shuffled": {
        **THREE,
        "settings": {
            "pack": {"pool": 4, "homogeneous": {"prose": ["web"], "other": ["code", "math"]}, "max_age": 3},
            "operators": [{"kind": "shuffle", "options": {"buffer": 16}}],
        },
    },
    "masked": {"masked": True},
    "finite passes": {
        **THREE,
        "settings": {"length": 23},
        "per_source": {"code": {"epochs": 1}, "math": {"epochs": 2}, "web": {}},
    },
    "counted": {"settings": {"length": "count", "lanes": 3}},
    # No Parquet: its bytes, and with them a mean and phases, are another with each version of its writer.
    "tar": {"form": "tar"},
}


def golden_config(folder: Path, name: str) -> dict[str, Any]:
    """Write a golden plan's sources and return its configuration; documents have up to 90 tokens, rows 33."""
    described = PLANS[name]
    masked = described.get("masked", False)
    made = {
        source: samples(source, 120, longest=90, empty=5, masked=masked)
        for source in described.get("sources", ("code", "web"))
    }
    return stream(
        folder,
        sources=made,
        form=described.get("form", "jsonl"),
        masked=masked,
        settings=described.get("settings"),
        per_source=described.get("per_source"),
    )


def digests(config: dict[str, Any]) -> dict[str, str]:
    """Return the stream's digest at each of POSITIONS, through passes where it is finite."""
    found = {}
    with Loader(config) as loader:
        while loader.consumed < POSITIONS[-1]:
            for _ in loader:
                if loader.consumed in POSITIONS:
                    found[str(loader.consumed)] = stream_digest(loader.state_dict())
                if loader.consumed == POSITIONS[-1]:
                    break
    return found
