"""One rank's error becomes every rank's, so that none waits for one that is gone."""

from __future__ import annotations

import torch.distributed as dist
from torch.distributed import ProcessGroup

from zephon import ConfigError, DataError, StateError, StoreError, ZephonError

KINDS = {kind.__name__: kind for kind in (ConfigError, StateError, StoreError, DataError)}


def raise_together(error: ZephonError | None, *, group: ProcessGroup | None) -> None:
    """Raise, on all ranks of a group, the error of the lowest rank that has one; else return on all.

    A collective over the group (None: all ranks; nothing to wait for without torch.distributed). The group has to
    move CPU objects.
    """
    if not dist.is_available() or not dist.is_initialized():
        if error is not None:
            raise error
        return
    mine = None if error is None else (type(error).__name__, str(error))
    found: list[tuple[str, str] | None] = [None] * dist.get_world_size(group)
    dist.all_gather_object(found, mine, group=group)
    for rank, theirs in enumerate(found):
        if theirs is None:
            continue
        if error is not None and theirs == mine:
            raise error
        kind, message = theirs
        raise KINDS.get(kind, ZephonError)(f"{message} (raised on rank {rank} of {len(found)})")
