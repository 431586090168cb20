"""`zephon pack`: rewrite shards that can't be read in blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from zephon.cli.terminal import counted, size, stdout
from zephon.formats.pack import SHARD_BYTES, pack


def command(
    paths: Annotated[list[str], typer.Argument(metavar="PATHS...", help="Shards, folders or patterns.")],
    out: Annotated[Path, typer.Option(help="Folder for the new shards; it must hold none yet.")],
    form: Annotated[
        Literal["auto", "tar", "jsonl.zst"], typer.Option("--format", help="auto keeps tar, and makes the rest JSONL.")
    ] = "auto",
    shard_bytes: Annotated[int, typer.Option(min=1, help="About so many bytes a shard.")] = SHARD_BYTES,
) -> None:
    """Rewrite shards so that each block can be read by itself."""
    written = pack(paths, out, format=form, shard_bytes=shard_bytes, progress=True)
    num_bytes = sum(Path(path).stat().st_size for path in written)
    stdout().print(f"{out}: {counted(len(written), 'shard')}, {size(num_bytes)}")
