"""Zephon: online tokenizing, mixing and packing in an order that topology, backend and restarts can't change."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zephon.collate.batch import Batch as Batch
    from zephon.config import Config as Config
    from zephon.count import count_sequences as count_sequences
    from zephon.errors import ConfigError as ConfigError
    from zephon.errors import DataError as DataError
    from zephon.errors import StateError as StateError
    from zephon.errors import StoreError as StoreError
    from zephon.errors import ZephonError as ZephonError
    from zephon.loader import Loader as Loader
    from zephon.random import SampleRandom as SampleRandom
    from zephon.read_config import load_config as load_config
    from zephon.stages.document import Document as Document
    from zephon.state.whole import merge_states as merge_states
    from zephon.state.whole import stream_digest as stream_digest
    from zephon.topology import Topology as Topology

# Imported when first used: workers import zephon too, and must not pay for torch.
_HOMES = {
    "Batch": "zephon.collate.batch",
    "Config": "zephon.config",
    "ConfigError": "zephon.errors",
    "DataError": "zephon.errors",
    "Document": "zephon.stages.document",
    "Loader": "zephon.loader",
    "SampleRandom": "zephon.random",
    "StateError": "zephon.errors",
    "StoreError": "zephon.errors",
    "Topology": "zephon.topology",
    "ZephonError": "zephon.errors",
    "count_sequences": "zephon.count",
    "load_config": "zephon.read_config",
    "merge_states": "zephon.state.whole",
    "stream_digest": "zephon.state.whole",
}
__all__ = list(_HOMES)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'zephon' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
