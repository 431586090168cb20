"""Topology from meshes and process groups, for every rank of them, without processes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from zephon_torch import gather_state, host_group, topology_from_mesh, topology_from_world

from zephon import ConfigError, Topology


@contextmanager
def rank_of(rank: int, size: int) -> Iterator[None]:
    dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("shape", "names", "expected"),
    [
        ((2, 2), ("dp", "tp"), [(0, 2), (0, 2), (1, 2), (1, 2)]),
        ((2, 2), ("pp", "dp_shard"), [(0, 2), (1, 2), (0, 2), (1, 2)]),
        ((2, 2), ("dp_replicate", "dp_shard"), [(0, 4), (1, 4), (2, 4), (3, 4)]),
        ((2, 1, 2), ("dp_shard", "cp", "tp"), [(0, 2), (0, 2), (1, 2), (1, 2)]),
        ((2, 2), ("data_parallel", "tensor_parallel"), [(0, 2), (0, 2), (1, 2), (1, 2)]),
        # The mesh's order doesn't matter: replicas are the outer dimension of the data.
        ((2, 2), ("dp_shard", "dp_replicate"), [(0, 4), (2, 4), (1, 4), (3, 4)]),
    ],
)
def test_data_is_sharded_over_the_data_dimensions(
    shape: tuple[int, ...], names: tuple[str, ...], expected: list[tuple[int, int]]
) -> None:
    found = []
    for rank in range(4):
        with rank_of(rank, 4):
            mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
            topology = topology_from_mesh(mesh)
            found.append((topology.dp_rank, topology.dp_size))
    assert found == expected


def test_dimensions_can_be_named() -> None:
    with rank_of(3, 4):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
        assert topology_from_mesh(mesh, dp_dims=["columns"]) == Topology(dp_rank=1, dp_size=2)
        assert topology_from_mesh(mesh, dp_dims=[]) == Topology()
        with pytest.raises(ConfigError, match=r"no dimension of the mesh \(rows, columns\) is known to shard data"):
            topology_from_mesh(mesh)
        with pytest.raises(ConfigError, match=r"dp_dims=\['dp'\] aren't dimensions of the mesh, which has: rows, col"):
            topology_from_mesh(mesh, dp_dims=["dp"])
        with pytest.raises(ConfigError, match="the mesh has no dimension names"):
            topology_from_mesh(init_device_mesh("cpu", (4,)))


def test_without_processes_there_is_one_rank() -> None:
    assert topology_from_world() == Topology()
    assert host_group() is None
    with rank_of(2, 3):
        assert topology_from_world() == Topology(dp_rank=2, dp_size=3)


def test_alone_an_error_is_raised_as_it_is() -> None:
    error = ConfigError("no")
    with pytest.raises(ConfigError) as caught:
        gather_state(error)
    assert caught.value is error
