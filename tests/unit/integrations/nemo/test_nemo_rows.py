"""Batches for Megatron-Bridge, rows for AutoModel, and a checkpoint's files for more ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from streams import stream, take
from torch.utils.data import DataLoader
from zephon_megatron import Form, gpt_batch
from zephon_nemo import StreamDataset, spread_states
from zephon_nemo.batch import bridge_batch
from zephon_nemo.rows import row_of
from zephon_nemo.spread import main

from zephon import ConfigError, Loader, StateError


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    return stream(tmp_path / "data", settings={"pack": {"pool": 4, "align": 4}})


def test_a_dense_batch_keeps_four_tensors(config: dict[str, Any]) -> None:
    with Loader(config) as loader:
        made = bridge_batch(gpt_batch(take(loader, 1)[0], Form()))
    assert {key: (str(value.dtype), *value.shape) for key, value in made.items()} == {
        "tokens": ("torch.int64", 1, 32),
        "labels": ("torch.int64", 1, 32),
        "loss_mask": ("torch.float32", 1, 32),
        "position_ids": ("torch.int64", 1, 32),
    }


@pytest.mark.parametrize("cp_size", [1, 2])
def test_a_packed_batch_has_the_documents_bounds_and_no_repeats(config: dict[str, Any], cp_size: int) -> None:
    with Loader(config) as loader:
        batches = take(loader, 20)
    several = 0
    for batch in batches:
        made = bridge_batch(gpt_batch(batch, Form(packed=True, cp_size=cp_size)))
        bounds = made["cu_seqlens_q"]
        assert bounds.dtype == torch.int32
        assert bounds.tolist() == batch["cu_seqlens"].tolist()
        several += len(bounds) > 2
        names = {"cu_seqlens_q", "cu_seqlens_kv"}
        names |= {"cu_seqlens_q_padded", "cu_seqlens_kv_padded"} if cp_size > 1 else set()
        assert {key for key in made if key.startswith("cu_")} == names
        assert all(torch.equal(made[name], bounds) for name in names)
        assert len({made[name].data_ptr() for name in names}) == len(names)
        assert made["max_seqlen_q"].item() == made["max_seqlen_kv"].item() == int(bounds.diff().max())
    assert several > 5


@pytest.mark.parametrize("form", ["plain", "thd", "neat"])
def test_a_row_is_lists_of_integers(config: dict[str, Any], form: str) -> None:
    with Loader(config) as loader:
        batches = take(loader, 12)
    for batch in batches:
        row = row_of(batch, form)
        assert all(type(value) is int for values in row.values() for value in values)
        assert row["input_ids"] == batch["tokens"][0].tolist()
        lossless = batch["loss_mask"][0] == 0
        assert [label == -100 for label in row["labels"]] == lossless.tolist()
        bounds = batch["cu_seqlens"].tolist()
        if form == "plain":
            assert row["attention_mask"] == [1] * 32
        elif form == "thd":
            assert row["seq_lens"] == row["seq_lens_padded"]
            assert [sum(row["seq_lens"][:end]) for end in range(len(bounds))] == bounds
        else:
            changes = [
                place for place in range(1, 32) if row["attention_mask"][place] != row["attention_mask"][place - 1]
            ]
            assert [0, *changes, 32] == bounds
            assert row["attention_mask"][0] == 1
            assert max(row["attention_mask"]) == len(bounds) - 1


def test_a_dataset_goes_on_from_its_state_at_another_size(config: dict[str, Any]) -> None:
    expected = [row["input_ids"] for row, _ in zip(StreamDataset(config), range(12), strict=False)]
    whole = StreamDataset(config).shard(1, 0)
    rows = iter(whole)
    got = [next(rows)["input_ids"] for _ in range(4)]
    state = whole.state_dict()
    assert state["consumed"] == 4
    halves = [StreamDataset(config).shard(2, index) for index in range(2)]
    for half in halves:
        half.load_state_dict(state)
    streams = [iter(half) for half in halves]
    got += [next(streams[place % 2])["input_ids"] for place in range(8)]
    assert got == expected
    for dataset in (whole, *halves):
        dataset.close()


def test_what_a_dataset_refuses(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="form='packed' is unknown"):
        StreamDataset(config, form="packed")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="sharded already"):
        StreamDataset(config).shard(1, 0).shard(1, 0)
    with pytest.raises(ConfigError, match="num_workers"):
        next(iter(DataLoader(StreamDataset(config), batch_size=None, num_workers=1)))


def written(folder: Path, config: dict[str, Any], *, whole: bool) -> Path:
    dataset = StreamDataset(config).shard(1 if whole else 2, 0)
    next(iter(dataset))
    (folder / "dataloader").mkdir(parents=True)
    state = {"dataset_state": dataset.state_dict(), "_num_yielded": 1}
    torch.save(state, folder / "dataloader" / "dataloader_dp_rank_0.pt")
    dataset.close()
    return folder


def test_files_are_made_for_the_ranks_that_lack_one(config: dict[str, Any], tmp_path: Path) -> None:
    folder = written(tmp_path / "epoch_0_step_1", config, whole=True)
    made = spread_states(folder, ranks=3)
    assert [path.name for path in made] == ["dataloader_dp_rank_1.pt", "dataloader_dp_rank_2.pt"]
    assert spread_states(folder, ranks=3) == []
    assert len(list((folder / "dataloader").iterdir())) == 3
    first, last = (torch.load(folder / "dataloader" / f"dataloader_dp_rank_{rank}.pt") for rank in (0, 2))
    assert first == last


def test_a_file_that_doesn_t_serve_is_refused(
    config: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(StateError, match="no state of a data loader"):
        spread_states(tmp_path, ranks=2)
    part = written(tmp_path / "part", config, whole=False)
    with pytest.raises(StateError, match="lacks 2 lanes of 4"):
        spread_states(part, ranks=2)
    torch.save({"dataset_state": None}, part / "dataloader" / "dataloader_dp_rank_0.pt")
    assert main([str(part), "--ranks", "2"]) == 1
    told = capsys.readouterr().err
    assert "written by another dataset" in told
    assert told.count("\n") == 1
    assert [path.name for path in (part / "dataloader").iterdir()] == ["dataloader_dp_rank_0.pt"]
