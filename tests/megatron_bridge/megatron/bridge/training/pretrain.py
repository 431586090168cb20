"""Megatron-Bridge's `pretrain`, as far as it has to do with data: in its order, with its calls, without a model.

What builds iterators, fires callbacks, saves and loads is in `bridge_parts`: of this project's writing, or, where
BRIDGE_WHEEL names an unpacked wheel, Megatron-Bridge's own functions.
"""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import Any

import torch
from bridge_parts import find_parts


def pretrain(config: Any, forward_step_func: Any, callbacks: Any = None) -> None:
    parts = find_parts()
    state = SimpleNamespace(cfg=config, train_state=config.resumed, _eval_pgs=None)
    groups = config.groups
    if hasattr(config.dataset, "finalize"):
        config.dataset.finalize()
    parts.fire(callbacks, SimpleNamespace(state=state, model=[None], optimizer=None, scheduler=None))
    iterators = parts.iterators(config, state.train_state, groups)
    if state.train_state.step > 0:
        folder = config.dataset.dataloader_load or f"{config.checkpoint.load}/energon"
        parts.load(iterators[0], state.train_state.step, folder, pg_collection=groups)
    told = config.told
    told["code"] = parts.get_batch.__code__.co_filename
    # The schedule of an evaluation is the training's own, over the validation iterator.
    if config.validation.eval_iters:
        told["valid"] = [one_batch(parts, iterators[1], config, groups) for _ in range(config.validation.eval_iters)]
    for _ in range(config.train.train_iters):
        count = config.train.global_batch_size // (config.train.micro_batch_size * groups.dp.size())
        told["steps"].append([forward_step_func(state, parts, iterators[0], groups) for _ in range(count)])
        if iterators[0] is not None:
            iterators[0].advance()
        state.train_state.step += 1
        state.train_state.consumed_train_samples += config.train.global_batch_size
    if config.checkpoint.save:
        folder = config.dataset.dataloader_save or f"{config.checkpoint.save}/energon"
        parts.save(None, iterators[0], state.train_state.step, folder, pg_collection=groups)
    for one in iterators:
        if one is not None:
            one.iterable.close()


def one_batch(parts: Any, iterator: Any, config: Any, groups: Any) -> dict[str, Any]:
    """Return what get_batch gives, each tensor's rows as digests."""
    tokens, labels, loss_mask, _, position_ids, packed = parts.get_batch(iterator, config, pg_collection=groups)
    tensors = {"tokens": tokens, "labels": labels, "loss_mask": loss_mask, "position_ids": position_ids}
    made = {key: digests(value) for key, value in tensors.items() if value is not None}
    if packed is not None:
        made["packed"] = {key: value.tolist() for key, value in packed.items() if isinstance(value, torch.Tensor)}
    return made


def digests(rows: torch.Tensor) -> list[str]:
    return [hashlib.sha256(row.numpy().tobytes()).hexdigest() for row in rows]
