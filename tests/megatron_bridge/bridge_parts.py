"""What `pretrain` needs of Megatron-Bridge: this project's writing of it, or the functions of an unpacked wheel."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from megatron.core.rerun_state_machine import RerunDataIterator


class Parts(NamedTuple):
    fire: Callable[..., None]
    iterators: Callable[..., Any]
    save: Callable[..., None]
    load: Callable[..., None]
    get_batch: Callable[..., Any]


def find_parts() -> Parts:
    wheel = os.environ.get("BRIDGE_WHEEL")
    if wheel:
        from bridge_wheel import parts_of

        return parts_of(Path(wheel))
    return Parts(fire=fire, iterators=iterators, save=save, load=load, get_batch=get_batch)


def fire(callbacks: Any, context: Any) -> None:
    for callback in callbacks or []:
        callback.on_data_init_start(context)


def iterators(config: Any, train_state: Any, groups: Any) -> Any:
    from megatron.bridge.data.base import DatasetBuildContext

    assert config.dataset.dataloader_type == "external"
    context = DatasetBuildContext(train_samples=1, valid_samples=1, test_samples=1, pg_collection=groups)
    return [None if one is None else RerunDataIterator(one) for one in config.dataset.build_datasets(context)]


def save(model: Any, iterator: Any, step: int, folder: str, *, pg_collection: Any) -> None:
    if iterator is None:
        return
    assert hasattr(iterator.iterable, "save_state")
    if any(getattr(pg_collection, axis).rank() for axis in ("tp", "pp", "cp")):
        return
    state = iterator.iterable.save_state()
    path = Path(folder) / f"iter_{step:07d}" / f"train_dataloader_dprank{pg_collection.dp.rank():03d}.pt"
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"dataloader_state_dict": state}, path)
    dist.barrier(group=pg_collection.dp)


def load(iterator: Any, step: int, folder: str, *, pg_collection: Any) -> None:
    # It would look for as many files as there are ranks, and refuse any other number.
    assert not hasattr(getattr(iterator, "iterable", None), "restore_state")


def get_batch(iterator: Any, config: Any, *, pg_collection: Any) -> Any:
    first = pg_collection.pp.rank() == 0
    last = pg_collection.pp.rank() == pg_collection.pp.size() - 1
    middle = not (first or last)
    dataset = config.dataset
    if middle and not (dataset.enable_offline_packing and dataset.offline_packing_specs.packed_sequence_size > 0):
        return (None,) * 6
    batch = next(iterator)
    keys = (["tokens", "position_ids"] if first or middle else []) + (["labels", "loss_mask"] if last or middle else [])
    kept = {key: batch[key] if key in keys else None for key in ("tokens", "labels", "loss_mask", "position_ids")}
    packed = {key: value for key, value in batch.items() if "seqlen" in key} or None
    return kept["tokens"], kept["labels"], kept["loss_mask"], None, kept["position_ids"], packed
