"""An AutoModel checkpoint for more ranks than saved it: `python -m zephon_nemo.spread CHECKPOINT --ranks N`."""

from __future__ import annotations

import argparse
import pickle
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from zephon import StateError, ZephonError
from zephon.state import check_state

# Where AutoModel's save_on_dp_ranks puts them, and torchdata's loader keeps the dataset's state.
NAME = "dataloader"
FILE = NAME + "_dp_rank_{rank}.pt"
STATE = "dataset_state"


def spread_states(checkpoint: str | Path, *, ranks: int) -> list[Path]:
    """Give a checkpoint a data loader file for each of `ranks` ranks, and return those it made.

    AutoModel opens a file of each rank's own number, which isn't there for more ranks than saved; each file holds the
    whole stream's state, so the first one serves. `ranks` is data-parallel times context-parallel size. Raises
    StateError where the file isn't Zephon's, or not whole.
    """
    folder = Path(checkpoint) / NAME
    first = folder / FILE.format(rank=0)
    try:
        saved = torch.load(first, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        raise StateError(
            f"{first}: no state of a data loader ({' '.join(str(error).split())[:200]}); name the folder of one "
            "checkpoint, epoch_…_step_…"
        ) from error
    state = saved.get(STATE) if isinstance(saved, Mapping) else None
    if not isinstance(state, Mapping):
        raise StateError(f"{first} was written by another dataset; only Zephon's serve other numbers of ranks")
    try:
        check_state(state)
    except StateError as error:
        raise StateError(f"{first}: {error}") from error
    missing = state["plan"]["lanes"] - len(state["lanes"])
    if missing:
        raise StateError(f"{first} lacks {missing} lanes of {state['plan']['lanes']}; take a checkpoint that is whole")
    made = [folder / FILE.format(rank=rank) for rank in range(ranks)]
    made = [path for path in made if not path.exists()]
    for path in made:
        # Whole or not at all, whenever it ends.
        partial = path.with_name(path.name + ".partial")
        shutil.copyfile(first, partial)
        partial.replace(path)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command above; return 1, with one line on stderr, where it fails."""
    parser = argparse.ArgumentParser(prog="zephon_nemo.spread", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("checkpoint", help="an AutoModel checkpoint, epoch_…_step_…")
    parser.add_argument("--ranks", type=int, required=True, help="data-parallel size times context-parallel size")
    options = parser.parse_args(argv)
    try:
        made = spread_states(options.checkpoint, ranks=options.ranks)
    except ZephonError as error:
        sys.stderr.write(f"zephon_nemo.spread: {error}\n")
        return 1
    sys.stdout.write(f"{len(made)} files made\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
