"""Zephon for plain PyTorch: topology from a DeviceMesh, lanes in torch.distributed.checkpoint, dataset faces."""

from __future__ import annotations

from zephon_torch.checkpoint import LoaderState, WholeState
from zephon_torch.dataset import StreamDataset
from zephon_torch.gather import gather_state, host_group, raise_together
from zephon_torch.labels import masked_labels
from zephon_torch.load import load_loader
from zephon_torch.topology import topology_from_mesh, topology_from_world

__all__ = [
    "LoaderState",
    "StreamDataset",
    "WholeState",
    "gather_state",
    "host_group",
    "load_loader",
    "masked_labels",
    "raise_together",
    "topology_from_mesh",
    "topology_from_world",
]
