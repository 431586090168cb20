"""Bad input, one fault each: how it is made, and what must be said of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard
from small_tokenizer import write_small_tokenizer
from streams import stream, take

from zephon import ConfigError, DataError, Loader, StateError, StoreError, ZephonError

Config = dict[str, Any]
Broken = tuple[Config, Mapping[str, Any] | None]


@dataclass(frozen=True)
class Fault:
    """`make` writes it into a folder and returns a configuration and, maybe, a state to load."""

    make: Callable[[Path], Broken]
    error: type[ZephonError]
    message: str
    dp_size: int = 1


def shard(config: Config, source: str = "web", number: int = 0) -> Path:
    return Path(config["sources"][source]["path"][number])


def rewrite(path: Path, data: bytes) -> None:
    """Change a file in place, in a way that neither size nor time of change tells of."""
    stat = path.stat()
    if len(data) != stat.st_size:
        raise RuntimeError(f"{path}: {len(data)} bytes for {stat.st_size}")
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def text_config(folder: Path, *, eos: str = "<|endoftext|>", vocab_size: int = 400) -> Config:
    """Write texts and a tokenizer."""
    lines = [json.dumps({"text": f"The quick brown fox number {i} jumps over {i * i} dogs."}) for i in range(200)]
    folder.mkdir(exist_ok=True)
    (folder / "web.jsonl").write_text("\n".join(lines) + "\n")
    return {
        "seed": 1,
        "lanes": 2,
        "sequence_length": 32,
        "device": "cpu",
        "index_dir": str(folder / "index"),
        "tokenizer": {"path": str(write_small_tokenizer(folder, vocab_size=vocab_size)), "eos": eos},
        "sources": {
            "web": {"path": [str(folder / "web.jsonl")], "block_samples": 4, "stage": {"kind": "text", "field": "text"}}
        },
    }


def truncated_tar(folder: Path) -> Broken:
    config = stream(folder, form="tar")
    path = shard(config)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 + 700])
    return config, None


def corrupt_zstd(folder: Path) -> Broken:
    config = stream(folder, form="jsonl.zst")
    path = shard(config)
    # With a checksum, as the zstd program writes it: else a flipped bit may be other data, and good.
    data = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(b'{"tokens": [1, 2, 3]}\n' * 500))
    data[len(data) // 2] ^= 0x55
    path.write_bytes(data)
    return config, None


def cut_zstd(folder: Path) -> Broken:
    config = stream(folder, form="jsonl.zst")
    path = shard(config)
    path.write_bytes(path.read_bytes()[:-40])
    return config, None


def parquet_without_the_column(folder: Path) -> Broken:
    config = stream(folder, form="parquet")
    config["sources"]["web"]["stage"] = {"kind": "tokens", "field": "ids"}
    return config, None


def tar_without_the_member(folder: Path) -> Broken:
    config = stream(folder, form="tar")
    config["sources"]["web"]["stage"] = {"kind": "tokens", "field": "ids.npy"}
    return config, None


def invalid_utf8(folder: Path) -> Broken:
    config = text_config(folder)
    path = shard(config)
    path.write_bytes(path.read_bytes().replace(b"fox number 7 ", b"fox \xff\xfe number 7 "))
    return config, None


def invalid_json(folder: Path) -> Broken:
    config = stream(folder)
    path = shard(config)
    path.write_bytes(path.read_bytes().replace(b'{"tokens": [', b'{"tokens": [[', 1))
    return config, None


def ids_outside_the_vocabulary(folder: Path) -> Broken:
    config = stream(folder)
    config["tokenizer"] = text_config(folder / "text")["tokenizer"]
    return config, None


def missing_shard(folder: Path) -> Broken:
    config = stream(folder)
    shard(config, number=1).unlink()
    return config, None


def shard_that_is_gone_after_indexing(folder: Path) -> Broken:
    config = stream(folder)
    with Loader(config) as loader:
        take(loader, 1)
    shard(config, number=1).unlink()
    return config, None


def glob_without_a_match(folder: Path) -> Broken:
    config = stream(folder)
    config["sources"]["web"]["path"] = str(folder / "none-*.jsonl")
    return config, None


def empty_shards(folder: Path) -> Broken:
    config = stream(folder)
    for number in (0, 1):
        shard(config, number=number).write_bytes(b"")
    return config, None


def setting(**changes: Any) -> Callable[[Path], Broken]:
    def make(folder: Path) -> Broken:
        return {**stream(folder), **changes}, None

    return make


def weights(web: Any, code: Any) -> Callable[[Path], Broken]:
    def make(folder: Path) -> Broken:
        config = stream(folder)
        config["sources"]["web"]["weight"], config["sources"]["code"]["weight"] = web, code
        return config, None

    return make


def tokenizer_without_the_eos(folder: Path) -> Broken:
    return text_config(folder, eos="</s>"), None


def tokenizer_that_is_none(folder: Path) -> Broken:
    config = text_config(folder)
    Path(config["tokenizer"]["path"]).write_text("{}")
    return config, None


def stopped(config: Config, batches: int = 6, engine: str = "thread") -> dict[str, Any]:
    """Return the state after some batches."""
    with Loader({**config, "engine": engine, "backend": {"kind": "inline", "prefetch": 0}}) as loader:
        take(loader, batches)
        return loader.state_dict()


def state_of_another_plan(folder: Path) -> Broken:
    config = stream(folder)
    return {**config, "seed": 6, "pack": {"pool": 8}}, stopped(config)


def state_with_a_lane(change: Callable[[bytes], bytes]) -> Callable[[Path], Broken]:
    def make(folder: Path) -> Broken:
        config = stream(folder)
        state = stopped(config)
        return config, {**state, "lanes": {**state["lanes"], "2": change(state["lanes"]["2"])}}

    return make


def flipped(data: bytes) -> bytes:
    return data[:20] + bytes([data[20] ^ 4]) + data[21:]


def state_at_another_position(folder: Path) -> Broken:
    config = stream(folder)
    return config, {**stopped(config), "consumed": 9}


def state_of_a_part(folder: Path) -> Broken:
    config = stream(folder)
    state = stopped(config)
    return config, {**state, "lanes": {"1": state["lanes"]["1"]}}


def data_changed_under_a_held_document(folder: Path) -> Broken:
    config = stream(folder)
    # By another process: this one would still know the blocks that it has read.
    state = stopped(config, engine="process")
    for source in config["sources"]:
        for number in (0, 1):
            path = shard(config, source, number)
            rewrite(path, path.read_bytes().translate(bytes.maketrans(b"12345678", b"23456781")))
    return config, state


def data_grown(folder: Path) -> Broken:
    config = stream(folder)
    state = stopped(config)
    path = shard(config)
    path.write_bytes(path.read_bytes() + b'{"tokens": [1, 2], "mask": [1, 1]}\n')
    return config, state


def tokenizer_changed(folder: Path) -> Broken:
    config = text_config(folder)
    state = stopped(config)
    write_small_tokenizer(folder, vocab_size=380)
    return config, state


FAULTS = {
    "truncated tar": Fault(truncated_tar, DataError, r"shard-000\.tar: cut off at byte \d+.*; .*on_bad_sample: skip"),
    "corrupt zstd frame": Fault(corrupt_zstd, DataError, r"shard-000\.jsonl\.zst.*; "),
    "cut zstd frame": Fault(cut_zstd, DataError, r"shard-000\.jsonl\.zst.*; "),
    "Parquet without the column": Fault(
        parquet_without_the_column,
        DataError,
        r"shard-000\.parquet: no column 'ids' \(has: .*'tokens'.*\); set sources\.web\.stage\.field",
    ),
    "tar without the member": Fault(
        tar_without_the_member, DataError, r"shard-00.\.tar, sample .*'ids\.npy'.*sources\.web\.stage\.field"
    ),
    "invalid UTF-8": Fault(invalid_utf8, DataError, r"web\.jsonl, sample 7: .*UTF-8.*; mend it"),
    "invalid JSON": Fault(
        invalid_json, DataError, r"shard-000\.jsonl, sample 0: no JSON.*; mend it, or set on_bad_sample: skip"
    ),
    "ids outside the vocabulary": Fault(
        ids_outside_the_vocabulary, DataError, r"shard-.*'tokens' has the id \d+, outside 0\.\.399; set the tokenizer"
    ),
    "missing shard": Fault(missing_shard, StoreError, r"sources\.web\.path: .*shard-001\.jsonl.*; check"),
    "shard gone after indexing": Fault(
        shard_that_is_gone_after_indexing, StoreError, r"sources\.web\.path: .*shard-001\.jsonl.*; check"
    ),
    "glob without a match": Fault(
        glob_without_a_match, StoreError, r"sources\.web\.path: .*none-\*\.jsonl' matches no shard; check"
    ),
    "empty shards": Fault(
        empty_shards, DataError, r"sources\.web: 2 shards without a sample .*check sources\.web\.path"
    ),
    "unknown field": Fault(setting(sequence_lenght=3), ConfigError, r"unknown field `sequence_lenght`"),
    "weight of zero": Fault(weights(0, 1), ConfigError, r"sources\.web\.weight=0.* must be above 0; .*leave it out"),
    "negative weight": Fault(weights(1, -2), ConfigError, r"sources\.code\.weight=-2.* must be above 0; "),
    "source without a weight": Fault(weights(1, None), ConfigError, r"sources\.code\.weight is unset.*set a weight"),
    "weights of other sources": Fault(
        setting(mix={"schedule": [{"from": 9, "weights": {"books": 1}}]}),
        ConfigError,
        r"mix\.schedule\[0\]\.weights names books, not among sources: code, web",
    ),
    "tokenizer without the EOS": Fault(tokenizer_without_the_eos, ConfigError, r"tokenizer\.eos.*'</s>'"),
    "tokenizer that is none": Fault(tokenizer_that_is_none, ConfigError, r"tokenizer\.json"),
    "R and L": Fault(
        setting(),
        ConfigError,
        r"dp_size=3 and lanes=4 don't divide each other; dp sizes that work: 1, 2, 4, and multiples of 4",
        dp_size=3,
    ),
    "state of another plan": Fault(
        state_of_another_plan,
        StateError,
        r"another plan: pack\.pool is 4 in the state and 8 here; seed is 5 in the state and 6 here; restore these",
    ),
    "state cut short": Fault(
        state_with_a_lane(lambda data: data[:-3]), StateError, r"lane 2: .*damaged or cut short; load an earlier"
    ),
    "state without bytes": Fault(state_with_a_lane(lambda data: b""), StateError, r"lane 2: .*; load the whole state"),
    "state flipped": Fault(state_with_a_lane(flipped), StateError, r"lane 2: .*damaged or cut short; load an earlier"),
    "state at another position": Fault(state_at_another_position, StateError, r"lane 0 has 2 sequences .*consumed=9"),
    "state of a part": Fault(state_of_a_part, StateError, r"lacks lane 0.*merge_states of all ranks first"),
    "data changed under a held document": Fault(
        data_changed_under_a_held_document,
        StateError,
        r"source (web|code), block \d+.*the block's bytes hash to .* in the state; .*changed since the state was saved",
    ),
    "data grown": Fault(
        data_grown, StateError, r"another plan: sources\.web\..*; restore these settings, or start anew"
    ),
    "tokenizer changed": Fault(tokenizer_changed, StateError, r"another plan: .*tokenizer\..*; restore these settings"),
}
