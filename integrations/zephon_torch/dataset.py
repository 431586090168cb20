"""A loader's micro-batches as an IterableDataset, for trainers that want a torch DataLoader around everything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from msgspec.structs import replace
from torch.utils.data import IterableDataset, get_worker_info

from zephon import Batch, Config, Loader, StateError, Topology, load_config
from zephon.read_config import ConfigLike
from zephon.state import check_state
from zephon_torch.topology import topology_from_world


class StreamDataset(IterableDataset[Batch]):
    """Gives a rank's micro-batches, whole: use it with `DataLoader(dataset, batch_size=None)`.

    It shards by `topology` (by default all processes of torch.distributed, when it is made) and by nothing else.
    Best with num_workers=0, since the loader has workers of its own. Of a DataLoader's workers the first gives the
    whole stream and the others nothing. A worker is ahead of the trainer, so that it can't go on where the trainer
    stopped: rather than repeat or lose data it raises StateError where an earlier worker began the stream, where a
    loop was left early, and where a state was loaded after it started. persistent_workers=True allows whole passes.

    `state_dict` is this rank's, after the last micro-batch given where it is called: in the worker, if there is one,
    as torchdata's StatefulDataLoader does. `load_state_dict` takes that, or the whole state of any number of ranks.
    `len`, micro-batches a pass, exists for finite streams only.
    """

    def __new__(cls, config: ConfigLike = None, topology: Topology | None = None) -> StreamDataset:  # type: ignore[assignment]  # noqa: ARG004
        """Make a FiniteStreamDataset where the stream has a length, so that only then `len` exists."""
        finite = cls is StreamDataset and config is not None and load_config(config).length is not None
        return super().__new__(FiniteStreamDataset if finite else cls)

    def __init__(self, config: ConfigLike, topology: Topology | None = None) -> None:
        super().__init__()
        self._config: Config = load_config(config)
        self._topology = topology_from_world() if topology is None else topology
        self._loader: Loader | None = None
        self._state: Mapping[str, Any] | None = None
        # Sequences given by whichever process gave them, and states loaded by any, in memory that all of them see.
        self._given: torch.Tensor = torch.zeros(2, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        # States loaded that this process knows of, and whether its last loop was left before the pass's end.
        self._loaded = 0
        self._amid = False

    if TYPE_CHECKING:
        # Only FiniteStreamDataset has it; which of the two it is depends on a value.
        def __len__(self) -> int: ...

    @property
    def loader(self) -> Loader:
        """The loader of this process, made when first asked for."""
        if self._loader is None:
            # A worker's tensors go to the trainer's process, which CUDA tensors can't.
            config = self._config if get_worker_info() is None else replace(self._config, device="cpu")
            loader = Loader(config, self._topology)
            if self._state is not None:
                loader.load_state_dict(self._state)
            self._loader = loader
        return self._loader

    def __iter__(self) -> Iterator[Batch]:
        worker = get_worker_info()
        if worker is not None and worker.id:
            return
        loader = self.loader
        if worker is not None and self._amid:
            raise StateError(
                "the last loop over the DataLoader was left early, when its worker had given more than was taken; use "
                "num_workers=0, or a new dataset with the state loaded"
            )
        self._amid = True
        batches = iter(loader)
        while True:
            self._check(loader)
            batch = next(batches, None)
            if batch is None:
                self._amid = False
                return
            self._given[0] = loader.consumed
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's state after the last micro-batch given in this process; {} in a worker that gives none."""
        worker = get_worker_info()
        if worker is not None and worker.id:
            return {}
        self._check(self.loader)
        return self.loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state: this rank's, or a whole one."""
        if not state:
            return
        check_state(state)
        if self._loader is not None:
            self._loader.load_state_dict(state)
        self._state = state
        self._loaded += 1
        self._amid = False
        self._given[0] = state["consumed"]
        self._given[1] = self._loaded

    def close(self) -> None:
        """Stop this process's loader."""
        if self._loader is not None:
            self._loader.close()

    def _check(self, loader: Loader) -> None:
        """Raise StateError where another process gave what this one would give, or loaded a state."""
        given, loaded = self._given.tolist()
        if loaded != self._loaded:
            raise StateError(
                "a state was loaded into the dataset after the DataLoader's worker had started; load it before "
                "iterating, or use num_workers=0"
            )
        if given != loader.consumed:
            raise StateError(
                f"another process gave the stream up to consumed={given}, and this one would begin at "
                f"{loader.consumed}; use num_workers=0 or persistent_workers=True, or load the state first"
            )

    def __getstate__(self) -> dict[str, Any]:
        """Leave the loader behind: a worker makes its own, which goes on from where this one is."""
        kept = self.__dict__.copy()
        if self._loader is not None:
            kept["_state"] = self._loader.state_dict()
        kept["_loader"] = None
        return kept


class FiniteStreamDataset(StreamDataset):
    """A finite stream's dataset: it has a length."""

    _length: int | None = None

    def __len__(self) -> int:
        """Return the micro-batches that every rank is given in a whole pass."""
        if self._length is None:
            with Loader(replace(self._config, device="cpu"), self._topology) as loader:
                self._length = len(loader)
        return self._length
