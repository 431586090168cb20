"""A rank's data-parallel place, as the Trainer's strategy has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from zephon_torch.topology import topology_from_world

from zephon import Topology

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

FindTopology = Callable[["Trainer"], Topology]


def topology_of(trainer: Trainer | None) -> Topology:
    """Return the data-parallel rank and size that a Trainer shards data by; without one, all processes.

    DDP and FSDP (hybrid sharding too): all processes. ModelParallelStrategy: the mesh's data_parallel dimension.
    Other strategies: what they tell Lightning's samplers (DeepSpeed: all processes, also under tensor parallelism).
    """
    if trainer is None:
        return topology_from_world()
    shares = trainer.distributed_sampler_kwargs
    if shares is None:
        return Topology()
    return Topology(dp_rank=int(shares["rank"]), dp_size=int(shares["num_replicas"]))


def device_of(trainer: Trainer | None) -> str:
    """Return the device to build micro-batches on: the rank's own, or the CPU where Lightning has to move them."""
    device: torch.device = torch.device("cpu") if trainer is None else trainer.strategy.root_device
    return str(device) if device.type == "cuda" else "cpu"
