"""A loader for torchtitan 0.3.0, whose trainer builds it, iterates it and checkpoints it with DCP.

In the trainer's configuration: `dataloader=ZephonDataLoader.Config(path="configs/text.yaml")`. The trainer calls that
configuration's `build` with the arguments of `__init__` below, takes `(inputs, labels)` from the iterator, and puts
the loader into torch.distributed.checkpoint under "dataloader".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torchtitan.components.dataloader import BaseDataLoader
from zephon_torch import LoaderState, masked_labels

import zephon


class ZephonDataLoader(BaseDataLoader):
    """A data-parallel rank's micro-batches of the stream, on any number of ranks at each resume."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        """`path` of the stream's configuration."""

        path: str

    def __init__(
        self,
        config: Config,
        *,
        dp_world_size: int,
        dp_rank: int,
        tokenizer: Any,
        seq_len: int,
        local_batch_size: int,
        snapshot_every_n_steps: int | None = None,
    ) -> None:
        # The tokenizer is the stream's own: it is part of the plan. So is the row length, which has to agree.
        stream = zephon.load_config(config.path, [f"micro_batch_size={local_batch_size}"])
        if stream.sequence_length != seq_len:
            raise zephon.ConfigError(
                f"seq_len={seq_len}, but {config.path} has sequence_length: {stream.sequence_length}; make them equal"
            )
        self.loader = zephon.Loader(stream, zephon.Topology(dp_rank=dp_rank, dp_size=dp_world_size))
        self._state = LoaderState(self.loader)

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        """Give the inputs and the labels of each micro-batch from the current position on."""
        for batch in self.loader:
            # torchtitan's loss leaves out the labels -100, as torch's does.
            yield {"input": batch["tokens"], "positions": batch["position_ids"]}, masked_labels(batch)

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's lanes: a key each, whatever the number of ranks."""
        return self._state.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; nothing, as torchtitan passes without one, means the start."""
        if state_dict:
            self._state.load_state_dict(state_dict)

    def close(self) -> None:
        """Stop the loader's threads and processes."""
        self.loader.close()
