"""States in checkpoints of torch.save: found, chosen by their place, refused in one line."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer

from zephon.cli import state as commands
from zephon.cli.state_file import read_state, write_state
from zephon.errors import StateError, StoreError
from zephon.lanes.state import LaneState
from zephon.state import encode_lane, make_state, stream_digest

PLAN = {"version": 1, "lanes": 1, "seed": 7}
MODEL = {"weight": torch.zeros(3, 4)}


def state(consumed: int = 4, **changes: Any) -> dict[str, Any]:
    lane = encode_lane(LaneState(0, consumed, 0, (), (), bytes([consumed]) * 16))
    return make_state(PLAN, consumed, {0: lane}) | changes


def saved(folder: Path, content: Any, **options: Any) -> Path:
    torch.save(content, folder / "checkpoint.pt", **options)
    return folder / "checkpoint.pt"


@pytest.mark.parametrize("archive", [True, False])
@pytest.mark.parametrize(
    ("content", "place"),
    [
        (state(), None),
        ({"model": MODEL, "step": 3, "stream": state()}, "stream"),
        ({"model": MODEL, "data": {"loaders": [None, (state(),)]}}, "data.loaders[1][0]"),
    ],
)
def test_the_state_is_found_wherever_it_is(tmp_path: Path, content: Any, place: str | None, archive: bool) -> None:
    path = saved(tmp_path, content, _use_new_zipfile_serialization=archive)
    assert read_state(path) == state()
    if place is not None:
        assert read_state(Path(f"{path}:{place}")) == state()


def test_equal_states_are_one(tmp_path: Path) -> None:
    path = saved(tmp_path, {"stream": state(), "copy": state()})
    assert read_state(path) == state()
    assert read_state(Path(f"{path}:copy")) == state()


def test_of_several_one_has_to_be_chosen(tmp_path: Path) -> None:
    path = saved(tmp_path, {"stream": state(4), "before": {"stream": state(2)}})
    several = r"checkpoint\.pt holds 2 states, and they differ: stream \(consumed 4\), before\.stream \(consumed 2\); "
    with pytest.raises(StateError, match=several + r"choose one: .*checkpoint\.pt:stream$"):
        read_state(path)
    assert read_state(Path(f"{path}:stream")) == state(4)
    assert read_state(Path(f"{path}:before.stream")) == state(2)
    with pytest.raises(StateError, match=r"no state at 'model', only at stream \(consumed 4\), before\.stream"):
        read_state(Path(f"{path}:model"))


def test_many_are_not_all_named(tmp_path: Path) -> None:
    path = saved(tmp_path, [state(number) for number in range(20)])
    with pytest.raises(StateError, match=r"\[7\] \(consumed 7\) and 12 more; choose one: .*checkpoint\.pt:\[0\]$"):
        read_state(path)


def test_a_file_with_a_colon_in_its_name_is_a_file(tmp_path: Path) -> None:
    path = saved(tmp_path, {"stream": state()}).rename(tmp_path / "run:3.pt")
    assert read_state(path) == state()
    assert read_state(Path(f"{path}:stream")) == state()


def test_a_checkpoint_that_holds_itself_ends(tmp_path: Path) -> None:
    content: dict[str, Any] = {"stream": state()}
    content["self"] = content
    assert read_state(saved(tmp_path, content)) == state()


def test_a_checkpoint_without_a_state_names_the_remedy(tmp_path: Path) -> None:
    path = saved(tmp_path, {"model": MODEL})
    with pytest.raises(StateError, match=r"holds no state of Zephon's.*torch\.save\(\{.*loader\.state_dict\(\)"):
        read_state(path)


def test_a_state_of_another_release_is_named_with_its_place(tmp_path: Path) -> None:
    path = saved(tmp_path, {"stream": state(version=2)})
    with pytest.raises(StateError, match=r"checkpoint\.pt:stream: state of version 2, this release reads 1"):
        read_state(path)


def test_what_torch_can_not_load_is_refused_in_one_line(tmp_path: Path) -> None:
    path = saved(tmp_path, {"stream": state(), "options": argparse.Namespace(lr=1)})
    with pytest.raises(
        StateError, match=r"weights_only=True: Unsupported global: GLOBAL argparse\.Namespace was.*; save loader"
    ) as caught:
        read_state(path)
    refused = [str(caught.value)]
    whole = saved(tmp_path, {"model": MODEL, "stream": state()}).read_bytes()
    np.savez(tmp_path / "arrays.npz", a=np.zeros(3))
    for data in (whole[:2], whole[: len(whole) // 2], whole[:-1], b"\x80\x02", (tmp_path / "arrays.npz").read_bytes()):
        path.write_bytes(data)
        with pytest.raises(StateError, match=r"torch can't load .*checkpoint\.pt with weights_only=True: ") as caught:
            read_state(path)
        refused.append(str(caught.value))
    assert not any("\n" in line or "\x1b" in line or len(line) > 500 + len(str(path)) for line in refused)


def test_a_place_in_another_file_is_refused(tmp_path: Path) -> None:
    write_state(tmp_path / "a", state())
    with pytest.raises(StateError, match=r"a is no checkpoint of torch\.save, so it has no place 'stream'; pass "):
        read_state(tmp_path / "a:stream")
    with pytest.raises(StoreError, match=r"can't read the state .*none:stream: No such file"):
        read_state(tmp_path / "none:stream")


def test_show_and_diff_take_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path, {"stream": state(4), "before": state(2)})
    write_state(tmp_path / "a", state(4))
    commands.show(Path(f"{path}:stream"))
    assert stream_digest(state(4)) in capsys.readouterr().out
    commands.diff(tmp_path / "a", Path(f"{path}:stream"))
    assert capsys.readouterr().out == "equal\n"
    with pytest.raises(typer.Exit):
        commands.diff(tmp_path / "a", Path(f"{path}:before"))
    line, *_ = capsys.readouterr().out.splitlines()
    assert line == "positions differ, 4 and 2 sequences consumed: digests can't be compared"


def test_a_state_of_its_own_is_read_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_state(tmp_path / "a", state())
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "zephon.collate.checkpoint", raising=False)
    assert read_state(tmp_path / "a") == state()


def test_names_that_look_like_places_are_told_apart(tmp_path: Path) -> None:
    path = saved(tmp_path, {"a": {"b": state(1)}, "a.b": state(2), 0: state(3), "0": state(4)})
    with pytest.raises(StateError, match="holds 4 states, and they differ"):
        read_state(path)
    found = [read_state(Path(f"{path}:{place}"))["consumed"] for place in ("a.b", "['a.b']", "[0]", "0")]
    assert found == [1, 2, 3, 4]


def test_a_checkpoint_isnt_written_over(tmp_path: Path) -> None:
    path = saved(tmp_path, {"model": MODEL, "stream": state()})
    before = path.read_bytes()
    with pytest.raises(StateError, match=r"checkpoint\.pt is a checkpoint, of which a state alone would be left"):
        write_state(path, state())
    assert path.read_bytes() == before
    write_state(tmp_path / "own", state(2))
    write_state(tmp_path / "own", state(3))
    assert read_state(tmp_path / "own") == state(3)


def test_a_pipe_that_holds_a_checkpoint_is_refused(tmp_path: Path) -> None:
    data = saved(tmp_path, {"stream": state()}).read_bytes()
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(data[:1000],))
    writer.start()
    with pytest.raises(StateError, match="is a pipe that holds a checkpoint"):
        read_state(tmp_path / "pipe")
    writer.join()


@pytest.mark.parametrize("protocol", [3, 4])
def test_other_protocols_of_pickle_are_one_line(tmp_path: Path, protocol: int) -> None:
    path = saved(tmp_path, {"stream": state()}, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
    with pytest.raises(StateError, match=r"torch can't load .* with weights_only=True"):
        read_state(path)


def test_too_long_a_name_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="can't read the state"):
        read_state(tmp_path / ("x" * 5000))


def test_states_of_tensors_are_told_apart_too(tmp_path: Path) -> None:
    one, other = state() | {"lanes": {"0": torch.zeros(2)}}, state() | {"lanes": {"0": torch.ones(2)}}
    path = saved(tmp_path, {"one": one, "other": other})
    with pytest.raises(StateError, match="holds 2 states, and they differ"):
        read_state(path)
