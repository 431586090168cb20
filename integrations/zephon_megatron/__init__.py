"""Zephon for Megatron-Core and Megatron-LM: topology, batches as get_batch wants them, state in checkpoints."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zephon_megatron.arguments import add_zephon_arguments as add_zephon_arguments
    from zephon_megatron.batch import Form as Form
    from zephon_megatron.batch import gpt_batch as gpt_batch
    from zephon_megatron.iterator import IdleIterator as IdleIterator
    from zephon_megatron.iterator import ZephonIterator as ZephonIterator
    from zephon_megatron.lanes import lane_shards as lane_shards
    from zephon_megatron.lanes import load_lane_shards as load_lane_shards
    from zephon_megatron.provider import make_provider as make_provider
    from zephon_megatron.provider import train_valid_test_datasets_provider as train_valid_test_datasets_provider
    from zephon_megatron.topology import Place as Place
    from zephon_megatron.topology import find_place as find_place
    from zephon_megatron.topology import needs_data as needs_data

_HOMES = {
    "Form": "batch",
    "IdleIterator": "iterator",
    "Place": "topology",
    "ZephonIterator": "iterator",
    "add_zephon_arguments": "arguments",
    "find_place": "topology",
    "gpt_batch": "batch",
    "lane_shards": "lanes",
    "load_lane_shards": "lanes",
    "make_provider": "provider",
    "needs_data": "topology",
    "train_valid_test_datasets_provider": "provider",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'zephon_megatron' has no attribute {name!r}")
    return getattr(import_module(f"zephon_megatron.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
