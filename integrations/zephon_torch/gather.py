"""The whole state from the ranks' parts, as a collective that ends on every rank the same way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch.distributed as dist
from torch.distributed import ProcessGroup

from zephon import ConfigError, DataError, StateError, StoreError, ZephonError, merge_states

KINDS = {kind.__name__: kind for kind in (ConfigError, StateError, StoreError, DataError)}


def gather_state(state: Mapping[str, Any] | ZephonError, *, group: ProcessGroup | None = None) -> dict[str, Any]:
    """Return the whole state, joined of what each rank of the group passes: its `loader.state_dict()`.

    A collective over the group (None: all ranks). It has to move CPU objects: see `host_group`. Without
    torch.distributed, or alone, the rank's own state. A rank that couldn't make its part passes the error, so that
    the others don't wait for it: then all ranks raise it. Raises StateError on all ranks where the parts don't
    belong together.
    """
    parts = _exchange(state, group)
    failed = [(rank, part) for rank, part in enumerate(parts) if isinstance(part, ZephonError)]
    if failed:
        rank, error = failed[0]
        if error is state:
            raise error
        raise type(error)(f"{error} (on rank {rank} of {len(parts)})")
    return merge_states([part for part in parts if not isinstance(part, ZephonError)])


def host_group(group: ProcessGroup | None = None) -> ProcessGroup | None:
    """Return a group of the same ranks that moves CPU objects: the given one where it can, else a new gloo group.

    Making one is a collective over *all* ranks, each of which passes its own group: call it once, at set-up, never
    within a save that only some ranks enter. None where torch.distributed isn't initialised.
    """
    if not _initialized():
        return None
    given = dist.group.WORLD if group is None else group
    if "gloo" in dist.get_backend(given) or "mpi" in dist.get_backend(given):
        return given
    mine = dist.get_process_group_ranks(given)
    everyone: list[list[int] | None] = [None] * dist.get_world_size()
    # On the default group: with NCCL, torch moves the objects through the current device.
    dist.all_gather_object(everyone, mine)
    made: ProcessGroup | None = None
    for ranks in sorted({tuple(ranks) for ranks in everyone if ranks is not None}):
        candidate = dist.new_group(list(ranks), backend="gloo")
        if list(ranks) == mine:
            made = candidate
    return made


def raise_together(error: ZephonError | None, *, group: ProcessGroup | None = None) -> None:
    """Raise, on all ranks of a group, the error of the lowest rank that has one; else return on all.

    A collective, as `gather_state`.
    """
    for rank, found in enumerate(_exchange(error, group)):
        if found is None:
            continue
        if found is error:
            raise error
        raise type(found)(f"{found} (on rank {rank})")


def _exchange(mine: Any, group: ProcessGroup | None) -> list[Any]:
    """Return what each rank passed, by rank; errors as the kind they are of."""
    if not _initialized() or dist.get_world_size(group) == 1:
        return [mine]
    sent = ("error", _kind(mine), str(mine)) if isinstance(mine, ZephonError) else ("value", mine, "")
    received: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(received, sent, group=group)
    found = [KINDS.get(value, ZephonError)(text) if what == "error" else value for what, value, text in received]
    found[dist.get_rank(group)] = mine
    return found


def _kind(error: ZephonError) -> str:
    return next((name for name, kind in KINDS.items() if isinstance(error, kind)), "ZephonError")


def _initialized() -> bool:
    return dist.is_available() and dist.is_initialized()
