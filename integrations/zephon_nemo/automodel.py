"""A dataset for NeMo AutoModel: `dataset._target_: zephon_nemo.StreamDataset`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.utils.data import IterableDataset, get_worker_info
from zephon_torch.gather import gather_state, host_group

from zephon import Batch, ConfigError, Loader, Topology, ZephonError, load_config
from zephon.read_config import ConfigLike
from zephon_nemo.rows import row_of

Form = Literal["plain", "thd", "neat"]


class StreamDataset(IterableDataset[dict[str, list[int]]]):
    """Rows of a stream as AutoModel's collators take them: a dict of lists of integers each.

    config       path or mapping of the stream's configuration; one with a `length` ends, for validation
    overrides    set over it, as `a.b=value`
    form         plain | thd | neat: what a row holds beside input_ids, labels and position_ids (see `row_of`)

    AutoModel calls `shard` with the data-parallel rank and size, and that alone says which rows are a rank's: row n
    of the stream goes to rank n mod size. `state_dict` is a collective, and returns the whole stream's state, so
    that any rank's file restores any rank. Needs `dataloader.num_workers: 0`: the loader has its own workers, and
    a DataLoader's can't take part in a collective.
    """

    def __init__(self, config: ConfigLike, overrides: Sequence[str] = (), *, form: Form = "plain") -> None:
        super().__init__()
        if form not in ("plain", "thd", "neat"):
            raise ConfigError(f"form={form!r} is unknown; known: plain, thd, neat")
        # One row a batch: AutoModel batches rows itself. Positions are what its collators expect of a packed row.
        own = ["micro_batch_size=1", "device=cpu", "attention_mask=false"]
        own += [] if form == "plain" else ["reset_position_ids=true"]
        self._config = load_config(config, [*overrides, *own])
        self._form: Form = form
        self._topology: Topology | None = None
        self._group: ProcessGroup | None = None
        self._loader: Loader | None = None

    def shard(self, num_shards: int, index: int) -> StreamDataset:
        """Return the dataset of data-parallel rank `index` of `num_shards`; called by AutoModel on every rank.

        With torch.distributed a collective over all ranks, which makes the group that states are gathered over.
        """
        if self._topology is not None:
            raise ConfigError("the stream is sharded already; give AutoModel the dataset as it was made")
        made = StreamDataset(self._config, form=self._form)
        made._topology = Topology(dp_rank=index, dp_size=num_shards)
        made._group = group_of_peers(index)
        return made

    def __iter__(self) -> Iterator[dict[str, list[int]]]:
        """Give the rank's rows from its position on; an endless stream never ends."""
        for batch in self._batches():
            yield row_of(batch, self._form)

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state after the last row given; a collective over ranks that differ in dp_rank alone."""
        part: dict[str, Any] | ZephonError
        try:
            part = self.loader.state_dict()
        except ZephonError as error:
            part = error
        return gather_state(part, group=self._group)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, whatever number of ranks saved it. Raises StateError where it isn't of this plan."""
        self.loader.load_state_dict(state)

    @property
    def loader(self) -> Loader:
        """The loader behind. Raises ConfigError with several ranks and no `shard`."""
        if self._loader is None:
            topology = self._topology
            if topology is None and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
                raise ConfigError(
                    f"there are {dist.get_world_size()} ranks and the stream isn't sharded among them; call "
                    "shard(dp_size, dp_rank), as AutoModel does"
                )
            self._loader = Loader(self._config, topology or Topology())
        return self._loader

    def close(self) -> None:
        """Stop the loader's threads and processes."""
        if self._loader is not None:
            self._loader.close()

    def _batches(self) -> Iterator[Batch]:
        if get_worker_info() is not None:
            raise ConfigError("num_workers is above 0; set dataloader.num_workers: 0, and backend.workers as you like")
        return iter(self.loader)


def group_of_peers(index: int) -> ProcessGroup | None:
    """Return a group that moves CPU objects: one rank of each data-parallel index, this rank among them.

    `index` is this rank's. Ranks of one index, in order, are told apart by pipeline, context and tensor parallelism;
    AutoModel asks all of the same place for their state, or none. A collective over all ranks; None where
    torch.distributed isn't initialised.
    """
    everyone = host_group(None)
    if everyone is None:
        return None
    placed: list[int] = [0] * dist.get_world_size()
    dist.all_gather_object(placed, index, group=everyone)
    by_index: dict[int, list[int]] = {}
    for rank, of_rank in enumerate(placed):
        by_index.setdefault(of_rank, []).append(rank)
    counts = {len(ranks) for ranks in by_index.values()}
    if len(counts) > 1:
        raise ConfigError(f"data-parallel indices by rank are {placed}; each index needs as many ranks as the others")
    mine: ProcessGroup | None = None
    for ranks in zip(*(by_index[key] for key in sorted(by_index)), strict=True):
        candidate = dist.new_group(list(ranks), backend="gloo")
        if dist.get_rank() in ranks:
            mine = candidate
    return mine
