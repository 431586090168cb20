"""Places in a layout, and which of them read data."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from zephon_megatron.topology import Place, find_place, needs_data

from zephon import ConfigError, Topology


class Group:
    """What is read of a process group."""

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size


def test_a_collection_of_groups_gives_the_place() -> None:
    groups = SimpleNamespace(dp=Group(1, 4), tp=Group(0, 2), pp=Group(2, 3), dp_cp=Group(3, 8))
    place = find_place(groups, vp_stage=1, vp_size=2)
    assert place == Place(dp_rank=1, dp_size=4, tp_size=2, pp_rank=2, pp_size=3, vp_stage=1, vp_size=2)
    assert place.topology == Topology(dp_rank=1, dp_size=4)
    assert str(place) == "dp 1/4, tp 0/2, pp 2/3, cp 0/1, vp 1/2"


def test_groups_without_data_parallelism_are_refused() -> None:
    with pytest.raises(ConfigError, match="has no dp group"):
        find_place(SimpleNamespace(tp=Group(0, 2)))


@pytest.mark.parametrize(
    "wrong", [{"tp_rank": 2, "tp_size": 2}, {"vp_stage": 1}, {"vp_stage": 2, "vp_size": 2}, {"dp_rank": -1}]
)
def test_impossible_places_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        Place(**wrong)


def test_who_reads_data() -> None:
    stages = [Place(pp_rank=rank, pp_size=4) for rank in range(4)]
    assert [needs_data(place, packed=False) for place in stages] == [True, False, False, True]
    assert all(needs_data(place, packed=True) for place in stages)
    assert all(needs_data(place, packed=False, all_stages=True) for place in stages)
    peers = [Place(tp_rank=rank, tp_size=2) for rank in range(2)]
    assert [needs_data(place, packed=True) for place in peers] == [True, False]
    assert all(needs_data(place, packed=True, replicate=True) for place in peers)
    assert all(needs_data(Place(cp_rank=rank, cp_size=2), packed=False) for rank in range(2))


def test_of_model_chunks_only_the_first_and_the_last_read() -> None:
    chunks = [Place(pp_rank=rank, pp_size=2, vp_stage=stage, vp_size=2) for rank in range(2) for stage in range(2)]
    assert [needs_data(place, packed=False) for place in chunks] == [True, False, False, True]


def test_one_holder_among_the_peers_of_a_dp_rank() -> None:
    peers = [
        Place(tp_rank=tp, tp_size=2, pp_rank=pp, pp_size=3, cp_rank=cp, cp_size=2)
        for tp in range(2)
        for pp in range(3)
        for cp in range(2)
    ]
    assert sorted(place.holder for place in peers) == list(range(12))
