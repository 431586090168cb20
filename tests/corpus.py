"""Real shards of a described corpus, and the same corpus as the oracle sees it."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from oracle_plan import Corpus, Doc, Plan

from zephon.config import Source
from zephon.formats.index import build_index

Samples = Sequence[Sequence[Doc]]
FUNCTION = {"kind": "function", "function": "corpus_stage:documents", "metadata": ["group"], "mask": True}
FORMATS = ("jsonl", "jsonl.zst", "jsonl.gz", "parquet", "tar")


def write_source(folder: Path, shards: Sequence[Samples], *, form: str, flat: bool) -> list[str]:
    """Write shards in a format and return their paths, in order.

    `flat` samples have one document or none, for the `tokens` stage; others are for `corpus_stage`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, samples in enumerate(shards):
        path = folder / f"shard-{number:03d}.{form}"
        records = [_flat(docs) if flat else {"docs": [_document(doc) for doc in docs]} for docs in samples]
        if form == "tar":
            _write_tar(path, records)
        elif form == "parquet":
            _write_parquet(path, records)
        else:
            _write_jsonl(path, records)
        paths.append(str(path))
    return paths


def stage_of(form: str, *, flat: bool, masked: bool) -> dict[str, Any]:
    """Return the stage that gives back the documents that `write_source` wrote."""
    if not flat:
        return {**FUNCTION, "mask": masked}
    suffix = ".npy" if form == "tar" else ""
    stage: dict[str, Any] = {"kind": "tokens", "field": f"tokens{suffix}"}
    return {**stage, "mask_field": f"mask{suffix}"} if masked else stage


def oracle_source(
    name: str, source: Source, shards: Sequence[Samples], paths: Sequence[str], *, index_dir: Path
) -> Corpus:
    """Return a source as the oracle sees it: its blocks as the index cuts them, and the index's mean."""
    index = build_index(name, source, index_dir=str(index_dir))
    blocks = []
    for number in range(index.num_blocks):
        location = index.location(number)
        samples = shards[paths.index(location.path)]
        blocks.append(tuple(tuple(docs) for docs in samples[location.first : location.first + location.samples]))
    written = sum(len(samples) for samples in shards)
    if sum(map(len, blocks)) != written:
        raise RuntimeError(f"source {name}: the index has {sum(map(len, blocks))} samples of {written}")
    return Corpus(blocks=tuple(blocks), mean_tokens=index.mean_tokens, epochs=source.epochs)


def config_of(plan: Plan, sources: dict[str, Source], *, index_dir: Path) -> dict[str, Any]:
    """Return the configuration, as a mapping, of an oracle's plan over written sources.

    Nothing is kept outside `index_dir`: tests must not find what others left in the user's cache.
    """
    first = plan.entries[0][1]
    return {
        "seed": plan.seed,
        "lanes": plan.lanes,
        "sequence_length": plan.sequence_length,
        "length": plan.length,
        "restart": plan.restart,
        "spread": plan.spread,
        "mask_boundary": plan.mask_boundary,
        "device": "cpu",
        "index_dir": str(index_dir),
        "mix": {
            "by": plan.by,
            "schedule": [{"from": start, "weights": weights} for start, weights in plan.entries[1:]],
        },
        "pack": {
            "kind": plan.kind,
            "pool": plan.pool,
            "long": plan.long,
            "align": plan.align,
            "homogeneous": plan.homogeneous,
            "max_age": plan.max_age,
        },
        "operators": [{"kind": "shuffle", "options": {"buffer": buffer}} for buffer in plan.shuffles],
        "backend": {"kind": "inline", "prefetch": 0},
        "sources": {
            name: {
                "path": source.path,
                "stage": source.stage,
                "block_samples": source.block_samples,
                "epochs": source.epochs,
                "weight": first.get(name),
            }
            for name, source in sources.items()
        },
    }


def with_sources(plan: Plan, sources: dict[str, Corpus]) -> Plan:
    """Return the plan over other sources of the same names; rows of files are padded with 0."""
    return replace(plan, sources=sources, pad=0)


def _document(doc: Doc) -> dict[str, Any]:
    return {"tokens": list(doc.tokens), "mask": None if doc.mask is None else list(doc.mask), "group": doc.group}


def _flat(docs: Sequence[Doc]) -> dict[str, Any]:
    if len(docs) > 1:
        raise RuntimeError(f"a flat sample has one document at most, not {len(docs)}")
    tokens = list(docs[0].tokens) if docs else []
    mask = list(docs[0].mask) if docs and docs[0].mask is not None else [1] * len(tokens)
    return {"tokens": tokens, "mask": mask}


def _write_jsonl(path: Path, records: Sequence[dict[str, Any]]) -> None:
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    if path.suffix == ".zst":
        data = zstandard.ZstdCompressor().compress(data)
    elif path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    path.write_bytes(data)


def _write_parquet(path: Path, records: Sequence[dict[str, Any]]) -> None:
    rows = [record if "tokens" in record else {"docs": json.dumps(record["docs"])} for record in records]
    types = {"tokens": pa.list_(pa.int64()), "mask": pa.list_(pa.int64()), "docs": pa.string()}
    schema = pa.schema([(name, types[name]) for name in rows[0]])
    # Row groups of an odd size, so that blocks end at them too.
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, row_group_size=5)


def _write_tar(path: Path, records: Sequence[dict[str, Any]]) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for number, record in enumerate(records):
            for name, data in _members(record):
                member = tarfile.TarInfo(f"{number:06d}.{name}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def _members(record: dict[str, Any]) -> list[tuple[str, bytes]]:
    if "docs" in record:
        return [("docs.json", json.dumps(record["docs"]).encode())]
    members = []
    for name in ("tokens", "mask"):
        buffer = io.BytesIO()
        np.save(buffer, np.array(record[name], np.int32))
        members.append((f"{name}.npy", buffer.getvalue()))
    return members
