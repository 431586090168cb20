"""Virtual pipelines: Megatron-LM saves the state of one data iterator, and has a list of them there."""

from __future__ import annotations

from functools import wraps
from types import ModuleType
from typing import Any

MARK = "takes_lists"


def save_from_lists(checkpointing: ModuleType) -> None:
    """Make a module's `maybe_save_dataloader_state` take a list of iterators, of which it saves the first's state.

    `checkpointing` is megatron.training.checkpointing, whose own function looks for `.iterable` on what it is given
    and fails for a list. The first model chunk's iterator is the one that holds data on the first pipeline stage,
    where states are saved. Does nothing the second time, and where the release has no such function.
    """
    original = getattr(checkpointing, "maybe_save_dataloader_state", None)
    if original is None or getattr(original, MARK, False):
        return

    @wraps(original)
    def save(train_iterator: Any, *args: Any, **kwargs: Any) -> Any:
        # Passed through as they are: releases differ in what comes after the iterator.
        first = train_iterator[0] if isinstance(train_iterator, list) else train_iterator
        return original(first, *args, **kwargs)

    setattr(save, MARK, True)
    checkpointing.maybe_save_dataloader_state = save  # type: ignore[attr-defined]
