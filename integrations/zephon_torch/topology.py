"""Which data-parallel rank this process is: from the process group, or from a DeviceMesh."""

from __future__ import annotations

from collections.abc import Sequence

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from zephon import ConfigError, Topology

# Dimensions that data is sharded over, outermost first; all others (tp, pp, cp, ep …) replicate it.
DATA_DIMS = ("dp_replicate", "replicate", "dp", "data_parallel", "data", "ddp", "dp_shard", "shard", "fsdp")


def topology_from_world() -> Topology:
    """Return this process as one rank among all processes, as for DDP and FSDP; alone without torch.distributed."""
    if not dist.is_available() or not dist.is_initialized():
        return Topology()
    return Topology(dp_rank=dist.get_rank(), dp_size=dist.get_world_size())


def topology_from_mesh(mesh: DeviceMesh, *, dp_dims: Sequence[str] | None = None) -> Topology:
    """Return this process's data-parallel rank in a mesh: its place in the dimensions that data is sharded over.

    `dp_dims`, outermost first; by default those of the mesh that are named dp_replicate, replicate, dp,
    data_parallel, data, ddp, dp_shard, shard or fsdp. Ranks that differ in other dimensions only (tensor, pipeline,
    context, expert parallel) get equal micro-batches. Raises ConfigError for a mesh without names or without such a
    dimension, and for a process outside the mesh.
    """
    names = tuple(mesh.mesh_dim_names or ())
    if not names:
        raise ConfigError("the mesh has no dimension names; pass mesh_dim_names=(…) to init_device_mesh")
    dims = tuple(name for name in DATA_DIMS if name in names) if dp_dims is None else tuple(dp_dims)
    unknown = [name for name in dims if name not in names]
    if unknown or len(set(dims)) < len(dims):
        raise ConfigError(f"dp_dims={list(dims)} aren't dimensions of the mesh, which has: {', '.join(names)}")
    if not dims and dp_dims is None:
        raise ConfigError(
            f"no dimension of the mesh ({', '.join(names)}) is known to shard data; name it: dp_dims=[…], "
            f"or dp_dims=[] where all ranks are replicas"
        )
    place = mesh.get_coordinate()
    if place is None:
        raise ConfigError("this process isn't part of the mesh; make the loader on the mesh's ranks only")
    rank, size = 0, 1
    for name in dims:
        axis = names.index(name)
        rank = rank * mesh.size(axis) + place[axis]
        size *= mesh.size(axis)
    return Topology(dp_rank=rank, dp_size=size)
