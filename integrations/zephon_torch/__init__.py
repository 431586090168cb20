"""Zephon for plain PyTorch: topology from a DeviceMesh, lanes in torch.distributed.checkpoint, dataset faces."""

from __future__ import annotations

from zephon_torch.checkpoint import LoaderState
from zephon_torch.dataset import StreamDataset
from zephon_torch.gather import gather_state, host_group, raise_together
from zephon_torch.topology import topology_from_mesh, topology_from_world

__all__ = [
    "LoaderState",
    "StreamDataset",
    "gather_state",
    "host_group",
    "raise_together",
    "topology_from_mesh",
    "topology_from_world",
]
