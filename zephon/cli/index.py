"""`zephon index`: find the samples of shards, once, and say how many there are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from zephon.advice import advice
from zephon.cli.arguments import Overrides
from zephon.cli.terminal import note, number, size, stdout, table
from zephon.config import Source
from zephon.count import count_with
from zephon.errors import ConfigError
from zephon.formats.index import SourceIndex, build_index
from zephon.plan import lanes_for
from zephon.read_config import load_config

CONFIGS = (".yaml", ".yml")


def command(
    what: Annotated[list[str], typer.Argument(metavar="CONFIG|PATHS...", help="A configuration, or shards.")],
    count: Annotated[bool, typer.Option("--count", help="Also count the sequences of one pass.")] = False,
    override: Overrides = None,
) -> None:
    """Index every source: shards, samples, blocks and bytes."""
    config = load_config(what[0], override or ()) if _is_config(what) else None
    if config is None and (count or override):
        raise ConfigError("--count and -o need a configuration; give its .yaml instead of shards")
    sources = {"shards": Source(path=what)} if config is None else config.sources
    rows = table("source", "shards", "samples", "blocks", "bytes", "bytes a sample", "hash")
    indices: dict[str, SourceIndex] = {}
    for name in sorted(sources):
        index = indices[name] = build_index(
            name,
            sources[name],
            index_dir=None if config is None else config.index_dir,
            on_truncated="raise" if config is None else config.on_bad_sample,
            progress=True,
        )
        rows.add_row(
            name,
            number(len(index.shards)),
            number(index.num_samples),
            number(index.num_blocks),
            size(index.num_bytes),
            size(index.num_bytes / index.num_samples),
            index.hash,
        )
    console = stdout()
    console.print(rows)
    if config is None:
        return
    lines = advice(config, indices, lanes_for(config, None))
    if count:
        finite = replace(config, length="count")
        lanes = lanes_for(finite, None)
        counted = count_with(finite, indices, lanes, progress=True)
        console.print(f"sequences: {number(counted.rows)}")
        lines += [line for line in advice(finite, indices, lanes, counted=counted) if line not in lines]
    for line in lines:
        note(line)


def _is_config(what: list[str]) -> bool:
    """Return whether the arguments are one configuration. Raises ConfigError for one among others."""
    configs = [path for path in what if Path(path).suffix.lower() in CONFIGS]
    if configs and len(what) > 1:
        raise ConfigError(f"{configs[0]} is a configuration, and {len(what) - 1} more arguments follow; give it alone")
    return bool(configs)
