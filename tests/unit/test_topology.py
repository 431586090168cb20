"""Ownership of lanes and sequences: every sequence has one rank, every rank plans what it consumes."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zephon.errors import ConfigError
from zephon.topology import Topology, first_row, lanes_of, owner, rows_before


def serves(size: int, lanes: int) -> bool:
    return lanes % size == 0 or size % lanes == 0


@given(size=st.integers(1, 60), lanes=st.integers(1, 60))
def test_a_rank_plans_exactly_the_lanes_of_the_sequences_it_consumes(size: int, lanes: int) -> None:
    ranks = [Topology(dp_rank=rank, dp_size=size) for rank in range(size)]
    if not serves(size, lanes):
        for topology in ranks:
            with pytest.raises(ConfigError):
                lanes_of(topology, lanes)
        return
    for topology in ranks:
        consumed = {n % lanes for n in range(size * lanes) if owner(n, size) == topology.dp_rank}
        assert set(lanes_of(topology, lanes)) == consumed


@given(size=st.integers(1, 60), lanes=st.integers(1, 60))
def test_lanes_are_shared_evenly(size: int, lanes: int) -> None:
    if not serves(size, lanes):
        return
    owned = [lane for rank in range(size) for lane in lanes_of(Topology(dp_rank=rank, dp_size=size), lanes)]
    assert sorted(owned) == sorted(list(range(lanes)) * max(1, size // lanes))


def test_error_names_the_sizes_that_work() -> None:
    with pytest.raises(ConfigError) as caught:
        lanes_of(Topology(dp_rank=0, dp_size=5), 12)
    message = str(caught.value)
    assert "\n" not in message
    assert "dp_size=5" in message
    assert "lanes=12" in message
    assert "1, 2, 3, 4, 6, 12" in message


def test_listed_sizes_do_work() -> None:
    for size in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 768, 1536):
        assert len(lanes_of(Topology(dp_rank=size - 1, dp_size=size), 768)) == max(1, 768 // size)


@pytest.mark.parametrize(("rank", "size"), [(-1, 4), (4, 4), (0, 0), (0, -2), (1, 1)])
def test_impossible_ranks_are_refused(rank: int, size: int) -> None:
    with pytest.raises(ConfigError, match=r"^[^\n]+$"):
        Topology(dp_rank=rank, dp_size=size)


def test_a_topology_survives_the_wire() -> None:
    topology = Topology(dp_rank=3, dp_size=8)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(topology), type=Topology) == topology


@given(position=st.integers(0, 10**15), period=st.integers(1, 5000), data=st.data())
def test_first_row_and_rows_before_count_the_same_rows(position: int, period: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, period - 1))
    first = first_row(position, index, period)
    assert position <= first < position + period
    assert first % period == index
    assert rows_before(position, index, period) == first // period
    assert rows_before(first + 1, index, period) == rows_before(first, index, period) + 1
