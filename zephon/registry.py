"""Kinds by name: the one place that maps a `kind` in a configuration to its implementation.

Each entry is "module:attribute", imported when first used, so that a kind costs nothing until then.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from zephon.errors import ConfigError

STAGES = {
    "text": "zephon.stages.text:TextStage",
    "tokens": "zephon.stages.tokens:TokensStage",
    "chat": "zephon.stages.chat:ChatStage",
    "function": "zephon.stages.function:FunctionStage",
    "image_text": "zephon.stages.image_text:ImageTextStage",
    "interleaved": "zephon.stages.interleaved:InterleavedStage",
    "video": "zephon.stages.video:VideoStage",
}
FORMATS = {
    "tar": "zephon.formats.tar:TarFormat",
    "jsonl": "zephon.formats.jsonl:JsonlFormat",
    "parquet": "zephon.formats.parquet:ParquetFormat",
}
PACKERS = {
    "best_fit": "zephon.lanes.best_fit:BestFit",
    "best_fit_split": "zephon.lanes.best_fit:BestFitSplit",
    "concat": "zephon.lanes.concat:Concat",
    "pad": "zephon.lanes.pad:Pad",
    "first_fit": "zephon.lanes.first_fit:FirstFit",
}
OPERATORS = {
    "shuffle": "zephon.lanes.shuffle:Shuffle",
}
BACKENDS = {
    "inline": "zephon.backends.inline:InlineBackend",
    "threads": "zephon.backends.threads:ThreadsBackend",
    "processes": "zephon.backends.processes:ProcessesBackend",
}


def resolve(table: dict[str, str], kind: str, *, place: str) -> Any:
    """Return what `kind` names in a table, or the user's own where it has the form "module:attribute".

    Raises ConfigError, listing the known kinds, where nothing is found.
    """
    target = table.get(kind, kind)
    module, colon, attribute = target.partition(":")
    if not colon:
        raise ConfigError(f"{place}: unknown kind {kind!r}; known: {', '.join(table)}, or your own as module:attribute")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{place}: can't import {target!r}: {error}") from error
