"""Finding the stream's state that Megatron-LM wrote with a checkpoint, and checking that it is the trainer's."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from zephon import StateError
from zephon.state import check_state
from zephon_megatron.iterator import COUNTER, STREAM

# What Megatron-LM's maybe_save_dataloader_state names the file of data-parallel rank 0, and its only entry.
FILES = "iter_{iteration:07d}/mp_rank_00*/train_dataloader_dprank000.pt"
ENTRY = "dataloader_state_dict"


def find_state(folders: Sequence[str], *, iteration: int) -> dict[str, Any]:
    """Return what `save_state` gave for an iteration's checkpoint, from the first of the folders that has it.

    Raises StateError, naming the places, where none has it, where two files of one iteration differ, and where
    a file isn't Zephon's.
    """
    for folder in folders:
        paths = sorted(Path(folder).glob(FILES.format(iteration=iteration)))
        found = [read_state(path) for path in paths]
        # One from a run with pipeline stages and one from a run without: equal, or one of them is stale.
        for path, other in zip(paths[1:], found[1:], strict=True):
            if other != found[0]:
                raise StateError(f"{paths[0]} and {path} are of different runs; remove the one that isn't this run's")
        if found:
            return found[0]
    places = ", ".join(str(Path(folder) / FILES.format(iteration=iteration)) for folder in folders) or "nowhere"
    raise StateError(
        f"the checkpoint of iteration {iteration} has no state of the stream (looked for {places}); set "
        "dataloader_load (load in a YAML's data section, --dataloader-load on the command line) to the folder that "
        "has it, or load an earlier checkpoint"
    )


def read_state(path: Path) -> dict[str, Any]:
    """Return a file's content, as `save_state` gave it. Raises StateError where it isn't Zephon's, or is damaged."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        raise StateError(
            f"{path}: no state of Zephon's ({' '.join(str(error).split())[:200]}); load an earlier checkpoint"
        ) from error
    saved = content.get(ENTRY) if isinstance(content, Mapping) else None
    if not isinstance(saved, Mapping) or STREAM not in saved or COUNTER not in saved:
        raise StateError(f"{path} was written by another data loader; train on with that one, or start anew")
    try:
        check_state(saved[STREAM])
    except StateError as error:
        raise StateError(f"{path}: {error}") from error
    return dict(saved)


def check_counter(saved: Mapping[str, Any], *, consumed: int, begins_at: int, replays: Callable[[], bool]) -> None:
    """Raise StateError where a state isn't at the sequence that the trainer's consumed_train_samples means.

    `replays` tells whether the next step takes micro-batches of the checkpoint's; the stream is ahead by these.
    """
    due = consumed - begins_at
    position = saved[STREAM]["consumed"]
    if position == due or (position > due and saved[COUNTER] == due and replays()):
        return
    raise StateError(
        f"the stream's state is at sequence {position}, the trainer at {due} (consumed_train_samples={consumed}"
        + (f", the stream's first sequence due at {begins_at}" if begins_at else "")
        + "); load model and stream from the same checkpoint"
    )
