"""Zephon for Megatron-Bridge and NeMo AutoModel."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zephon_nemo.automodel import StreamDataset as StreamDataset
    from zephon_nemo.bridge import ZephonDatasetConfig as ZephonDatasetConfig
    from zephon_nemo.recipe import StreamCallback as StreamCallback
    from zephon_nemo.recipe import pretrain as pretrain
    from zephon_nemo.recipe import use_zephon as use_zephon
    from zephon_nemo.spread import spread_states as spread_states

_HOMES = {
    "StreamCallback": "recipe",
    "StreamDataset": "automodel",
    "ZephonDatasetConfig": "bridge",
    "pretrain": "recipe",
    "spread_states": "spread",
    "use_zephon": "recipe",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'zephon_nemo' has no attribute {name!r}")
    return getattr(import_module(f"zephon_nemo.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
