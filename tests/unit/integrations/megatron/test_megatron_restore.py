"""Finding the stream's state among Megatron-LM's files, and checking that it is the trainer's."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from streams import stream, take
from zephon_megatron.restore import check_counter, find_state

from zephon import Loader, StateError

NAME = "train_dataloader_dprank000.pt"


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return the states after two and after four sequences."""
    with Loader(stream(tmp_path_factory.mktemp("stream"))) as loader:
        found = []
        for _ in range(2):
            take(loader, 2)
            found.append({"zephon": loader.state_dict(), "consumed_train_samples": loader.consumed})
        return found


def write(folder: Path, state: Any, *, iteration: int = 7, directory: str = "mp_rank_00") -> Path:
    path = folder / f"iter_{iteration:07d}" / directory / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path)
    return path


def test_the_first_folder_that_has_the_iteration_counts(tmp_path: Path, states: list[dict[str, Any]]) -> None:
    write(tmp_path / "b", {"dataloader_state_dict": states[0]})
    write(tmp_path / "c", {"dataloader_state_dict": states[1]}, directory="mp_rank_00_000")
    folders = [str(tmp_path / name) for name in "abc"]
    assert find_state(folders, iteration=7) == states[0]
    assert find_state(folders[2:], iteration=7) == states[1]
    with pytest.raises(StateError, match=rf"iteration 8 has no state .*{tmp_path}/a/iter_0000008"):
        find_state(folders, iteration=8)
    with pytest.raises(StateError, match="looked for nowhere"):
        find_state([], iteration=8)


def test_two_files_of_one_iteration_must_agree(tmp_path: Path, states: list[dict[str, Any]]) -> None:
    write(tmp_path, {"dataloader_state_dict": states[0]})
    write(tmp_path, {"dataloader_state_dict": states[0]}, directory="mp_rank_00_000")
    assert find_state([str(tmp_path)], iteration=7) == states[0]
    write(tmp_path, {"dataloader_state_dict": states[1]}, directory="mp_rank_00_000")
    with pytest.raises(StateError, match="are of different runs; remove the one"):
        find_state([str(tmp_path)], iteration=7)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"dataloader_state_dict": None}, "another data loader"),
        ({"dataloader_state_dict": {"rank": 0, "sample_states": []}}, "another data loader"),
        ([1, 2], "another data loader"),
        ({"dataloader_state_dict": {"zephon": {}, "consumed_train_samples": 4}}, "the state has no version"),
        ({"dataloader_state_dict": Path("x")}, "no state of Zephon's"),
    ],
)
def test_what_isn_t_zephon_s_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(StateError, match=message) as caught:
        find_state([str(tmp_path)], iteration=7)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", ["cut", "empty", "pickle"])
def test_damaged_files_are_refused(tmp_path: Path, states: list[dict[str, Any]], damage: str) -> None:
    path = write(tmp_path, {"dataloader_state_dict": states[0]})
    data = path.read_bytes()
    path.write_bytes(
        {"cut": data[: len(data) // 2], "empty": b"", "pickle": pickle.dumps({"a": 1}, protocol=2)}[damage]
    )
    with pytest.raises(StateError, match=r"load an earlier checkpoint|another data loader"):
        find_state([str(tmp_path)], iteration=7)


def test_the_trainer_s_counter_decides(states: list[dict[str, Any]]) -> None:
    never, always = lambda: False, lambda: True
    check_counter(states[0], consumed=2, begins_at=0, replays=never)
    check_counter(states[0], consumed=12, begins_at=10, replays=never)
    for consumed in (1, 3):
        with pytest.raises(StateError, match=f"is at sequence 2, the trainer at {consumed}"):
            check_counter(states[0], consumed=consumed, begins_at=0, replays=always)
    under_way = {**states[1], "consumed_train_samples": 2}
    check_counter(under_way, consumed=2, begins_at=0, replays=always)
    with pytest.raises(StateError, match="is at sequence 4, the trainer at 2"):
        check_counter(under_way, consumed=2, begins_at=0, replays=never)
