"""The iterator: without an end, with fresh dicts; its states and its errors. One rank, no torch.distributed."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from streams import samples, stream
from zephon_megatron import Form, IdleIterator, Place, ZephonIterator

from zephon import ConfigError, DataError, Loader, StateError


def iterator(config: dict[str, Any], **more: Any) -> ZephonIterator:
    place = more.pop("place", Place())
    size = more.pop("micro_batch_size", 2)
    return ZephonIterator(config, place, form=more.pop("form", Form()), micro_batch_size=size, **more)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return stream(tmp_path_factory.mktemp("stream"))


def test_a_finite_stream_begins_anew(tmp_path: Path) -> None:
    finite = stream(tmp_path, settings={"length": 5, "restart": True, "lanes": 1})
    data = iterator(finite)
    given = [batch["tokens"] for batch in islice(data, 9)]
    assert all(tokens.shape == (2, 32) for tokens in given)
    for number in range(3):
        assert torch.equal(given[number], given[number + 3])
        assert torch.equal(given[number], given[number + 6])
    assert not torch.equal(given[0], given[1])
    data.close()


@pytest.mark.parametrize("size", [0, -2, True, 1.5, None])
def test_a_batch_without_rows_is_refused(config: dict[str, Any], size: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^micro_batch_size={size!r} is no number of rows; set an int, 1 or more$"):
        iterator(config, micro_batch_size=size)


def test_an_error_names_the_rank_and_comes_again(tmp_path: Path) -> None:
    bad = stream(tmp_path, sources={"web": samples("web", 60)})
    shard = tmp_path / "web" / "shard-001.jsonl"
    lines = shard.read_text().splitlines(keepends=True)
    lines[20] = lines[20].replace("tokens", "tokons")
    shard.write_text("".join(lines))
    data = iterator(bad, place=Place(dp_rank=1, dp_size=2, tp_size=2))
    with pytest.raises(
        DataError, match=r"^rank at dp 1/2, tp 0/2, pp 0/1, cp 0/1: source web: shard-001.jsonl, sample 20"
    ):
        list(islice(data, 200))
    with pytest.raises(DataError, match="sample 20"):
        next(data)
    data.close()


def test_states_go_where_the_loader_s_go(config: dict[str, Any]) -> None:
    data = iterator(config)
    list(islice(data, 3))
    saved = data.save_state()
    assert saved["consumed_train_samples"] is None
    with Loader({**config, "micro_batch_size": 2}) as loader:
        list(islice(iter(loader), 3))
        assert loader.state_dict() == saved["zephon"]
        after = next(iter(loader))
    other = iterator(config)
    other.load_state_dict(saved["zephon"])
    assert torch.equal(next(other)["tokens"], after["tokens"])
    data.close()
    other.close()


@pytest.mark.parametrize("counter", [2, 8])
def test_a_trainer_that_counts_otherwise_can_t_save(config: dict[str, Any], counter: int) -> None:
    data = iterator(config, counter=lambda: counter)
    list(islice(data, 2))
    with pytest.raises(StateError, match=rf"4 sequences were handed out, .* consumed_train_samples={counter}"):
        data.save_state()
    data.close()


def test_a_step_that_will_be_replayed_may_be_ahead(config: dict[str, Any]) -> None:
    data = iterator(config, counter=lambda: 2, replaying=lambda: True)
    list(islice(data, 2))
    saved = data.save_state()
    assert (saved["consumed_train_samples"], saved["zephon"]["consumed"]) == (2, 4)
    behind = iterator(config, counter=lambda: 2, replaying=lambda: True)
    with pytest.raises(StateError, match="0 sequences were handed out"):
        behind.save_state()
    data.close()
    behind.close()


def test_what_reads_nothing_gives_empty_dicts() -> None:
    idle = IdleIterator()
    first, second = next(idle), next(idle)
    assert first == second == {}
    # Megatron writes into what it is given.
    assert first is not second
    idle.save_state()
    idle.close()
