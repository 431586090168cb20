"""A loader from a checkpoint of torch.distributed.checkpoint, with a look at what it holds before it is read."""

from __future__ import annotations

import os
from typing import Any

from torch.distributed import ProcessGroup
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.storage import StorageReader

from zephon import Loader, StateError, StoreError, ZephonError
from zephon.topology import lanes_of
from zephon_torch.checkpoint import CONSUMED, LANE, PLAN, VERSION, key_of, state_of
from zephon_torch.gather import raise_together


def load_loader(
    loader: Loader,
    checkpoint: str | os.PathLike[str] | StorageReader,
    *,
    key: str = "data",
    group: ProcessGroup | None = None,
) -> None:
    """Make a loader go on from a checkpoint that holds a LoaderState under `key`, whatever ranks saved it.

    Reads the rank's own lanes and nothing else of the checkpoint, once its metadata says that they are there. A
    collective over `group` (None: all ranks), as `dcp.load`. Unlike that, it takes the number of lanes from the
    checkpoint where the configuration doesn't say. Raises on all ranks: StoreError where the metadata can't be read;
    StateError where `key` holds no state of a loader, or one of another number of lanes or another plan.
    """
    reader = checkpoint if isinstance(checkpoint, StorageReader) else FileSystemReader(checkpoint)
    wanted: dict[str, Any] = {}
    failed: ZephonError | None = None
    try:
        num_lanes = _saved_lanes(reader, checkpoint, key, loader.config.lanes)
        lanes = [key_of(lane) for lane in lanes_of(loader.topology, num_lanes)]
        # The values say no more than that they aren't tensors.
        wanted = dict.fromkeys((VERSION, PLAN, CONSUMED, *lanes), b"")
    except ZephonError as error:
        failed = error
    raise_together(failed, group=group)
    found = {key: wanted}
    load(found, storage_reader=reader, process_group=group)
    try:
        loader.load_state_dict(state_of(found[key]))
    except ZephonError as error:
        failed = error
    raise_together(failed, group=group)


def _saved_lanes(reader: StorageReader, checkpoint: object, key: str, lanes: int | None) -> int:
    """Return the number of lanes in a checkpoint, checked against that of the configuration, if it says."""
    try:
        names = reader.read_metadata().state_dict_metadata
    except OSError as error:
        raise StoreError(
            f"no checkpoint of torch.distributed.checkpoint at {checkpoint}: {error}; name a folder that dcp.save wrote"
        ) from error
    mine = {name.removeprefix(f"{key}.") for name in names if name.startswith(f"{key}.")}
    saved = {name for name in mine if name.startswith(LANE)}
    if not saved or saved != {key_of(lane) for lane in range(len(saved))} or not {VERSION, PLAN, CONSUMED} <= mine:
        others = sorted({name.partition(".")[0] for name in names})
        raise StateError(
            f"{checkpoint} has no whole state of a Zephon loader under {key!r} (its keys: {', '.join(others[:10])}); "
            "save a LoaderState under that key, or name another"
        )
    if lanes is not None and lanes != len(saved):
        raise StateError(
            f"{checkpoint} holds {len(saved)} lanes under {key!r}, and the configuration says lanes={lanes}; "
            f"set lanes={len(saved)}, or leave it out to take what is saved"
        )
    return len(saved)
