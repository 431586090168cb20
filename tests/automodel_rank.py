"""One rank of a job that takes rows as NeMo AutoModel's recipes do, run after run, and writes down what it was given.

With AUTOMODEL_WHEELS (folders of unpacked wheels) the typed configuration, the loader, the step scheduler and the
checkpointer's files are AutoModel's and torchdata's own; else this project's, of the same shape.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import itertools
import json
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from rank_options import rank_options
from zephon_nemo import StreamDataset, spread_states

from zephon import ZephonError

GLOBAL, LOCAL = 8, 2
sys.path[:0] = os.environ.get("AUTOMODEL_WHEELS", "").split(os.pathsep) if "AUTOMODEL_WHEELS" in os.environ else []


class OwnLoader:
    """Stacks rows, and keeps the dataset's state under torchdata's name."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        rows = iter(self.dataset)
        while taken := list(itertools.islice(rows, LOCAL)):
            yield {key: torch.tensor([row[key] for row in taken]) for key in taken[0]}

    def state_dict(self) -> dict[str, Any]:
        return {"dataset_state": self.dataset.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.dataset.load_state_dict(state["dataset_state"])


def own(run: dict[str, Any], rank: int, size: int) -> tuple[Any, Any]:
    node = {key: value for key, value in run["yaml"]["dataset"].items() if key != "_target_"}
    loader = OwnLoader(StreamDataset(**node).shard(size, rank))
    batches = iter(loader)
    count = GLOBAL // (LOCAL * size)
    most = run["yaml"]["step_scheduler"]["max_steps"]
    # Up to so many steps, or to the end of the rows.
    return loader, itertools.islice(iter(lambda: list(itertools.islice(batches, count)), []), most)


class Absent(types.ModuleType):
    """A package that AutoModel's modules import names of, and that none of this uses."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.__spec__ = importlib.machinery.ModuleSpec(name, None)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def automodel(run: dict[str, Any], rank: int, size: int) -> tuple[Any, Any]:
    for name in ("datasets", "datasets.distributed"):
        sys.modules.setdefault(name, Absent(name))
    from nemo_automodel.components.config.loader import ConfigNode
    from nemo_automodel.recipes._typed_config import RecipeConfig

    cfg = RecipeConfig(ConfigNode(run["yaml"]))
    loader = cfg.dataloader.build(dp_rank=rank, dp_world_size=size)
    return loader, cfg.step_scheduler.build(loader, size, LOCAL)


def save(loader: Any, place: SimpleNamespace, folder: str) -> None:
    if "AUTOMODEL_WHEELS" in os.environ:
        from nemo_automodel.components.checkpoint.checkpointing import Checkpointer

        Checkpointer.save_on_dp_ranks(place, loader, "dataloader", folder)
    else:
        (Path(folder) / "dataloader").mkdir(parents=True, exist_ok=True)
        if place.tp_rank == 0:
            path = Path(folder) / "dataloader" / f"dataloader_dp_rank_{place.dp_rank}.pt"
            torch.save(loader.state_dict(), path)
    dist.barrier()


def load(loader: Any, place: SimpleNamespace, folder: str) -> None:
    if "AUTOMODEL_WHEELS" in os.environ:
        from nemo_automodel.components.checkpoint.checkpointing import Checkpointer

        Checkpointer.load_on_dp_ranks(place, loader, "dataloader", folder)
    else:
        path = Path(folder) / "dataloader" / f"dataloader_dp_rank_{place.dp_rank}.pt"
        loader.load_state_dict(torch.load(path, weights_only=True))


def one_run(run: dict[str, Any]) -> dict[str, Any]:
    size = dist.get_world_size() // run["tp"]
    config = SimpleNamespace(allow_legacy_pickle_restore=False)
    place = SimpleNamespace(dp_rank=dist.get_rank() // run["tp"], tp_rank=dist.get_rank() % run["tp"], pp_rank=0)
    place.process_group, place.config = None, config
    told: dict[str, Any] = {"dp_rank": place.dp_rank, "dp_size": size, "steps": []}
    make = automodel if "AUTOMODEL_WHEELS" in os.environ else own
    loader, steps = make(run, place.dp_rank, size)
    try:
        if run.get("load"):
            if run.get("spread") and dist.get_rank() == 0:
                spread_states(run["load"], ranks=size)
            dist.barrier()
            load(loader, place, run["load"])
        for step in steps:
            told["steps"].append([digests(batch) for batch in step])
        if run.get("save"):
            save(loader, place, run["save"])
    except (ZephonError, FileNotFoundError) as error:
        told |= {"error": type(error).__name__, "message": str(error)}
    loader.dataset.close()
    told["loader"] = type(loader).__module__
    return told


def digests(batch: dict[str, torch.Tensor]) -> dict[str, list[str]]:
    return {
        key: [hashlib.sha256(row.numpy().tobytes()).hexdigest() for row in value]
        for key, value in batch.items()
        if isinstance(value, torch.Tensor)
    }


def main() -> None:
    options = rank_options()
    rendezvous = f"file://{options.rendezvous}"
    dist.init_process_group("gloo", init_method=rendezvous, rank=options.rank, world_size=options.world)
    told = [one_run(run) for run in json.loads(options.runs.read_text())]
    (options.out / f"rank{options.rank}.json").write_text(json.dumps(told))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
