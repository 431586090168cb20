from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from zephon.cli import state as commands
from zephon.cli.state_file import read_state, write_state
from zephon.errors import StateError, StoreError
from zephon.item import Item
from zephon.lanes.state import HeldState, LaneState, SourceState
from zephon.state import encode_lane, make_state, stream_digest

PLAN = {"version": 1, "lanes": 2, "seed": 7, "sources": {"web": {"blocks": 9}}, "operators": []}
WEB = SourceState(name="web", passed=5, numbers=(3, 11, 0, 0, 2, 1, 0))


def lane(sequences: int, length: int = 30) -> bytes:
    item = Item(source="web", q=2, sample=1, part=0, start=10, length=length)
    return encode_lane(LaneState(0, sequences, 0, (WEB,), (HeldState({}, (item,)),), bytes([sequences]) * 16))


def state(**changes: Any) -> dict[str, Any]:
    return make_state(PLAN, 4, {0: lane(2), 1: lane(2)}) | changes


def test_a_state_comes_back_from_its_file(tmp_path: Path) -> None:
    write_state(tmp_path / "a", state())
    assert read_state(tmp_path / "a") == state()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_files_without_a_state_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"can't read the state .*none: No such file"):
        read_state(tmp_path / "none")
    for data in (b"", b"\xc1", b"\x80", b"\x01"):
        (tmp_path / "a").write_bytes(data)
        with pytest.raises(StateError, match="holds no state"):
            read_state(tmp_path / "a")


def test_a_cut_file_is_refused_at_every_length(tmp_path: Path) -> None:
    write_state(tmp_path / "a", state())
    data = (tmp_path / "a").read_bytes()
    for size in range(len(data)):
        (tmp_path / "a").write_bytes(data[:size])
        with pytest.raises(StateError):
            read_state(tmp_path / "a")


def test_a_folder_that_is_not_there_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="can't write the state"):
        write_state(tmp_path / "no" / "a", state())


def test_show_names_position_digest_plan_and_lanes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_state(tmp_path / "a", state())
    commands.show(tmp_path / "a")
    out = capsys.readouterr().out
    assert stream_digest(state()) in out
    assert re.search(r"^consumed +4 *$", out, re.M)
    assert re.search(r"^sources\.web\.blocks +9 *$", out, re.M)
    assert re.search(r"^1 +0 +2 +0 +web: 3, 11 +1 +20 +(02){16} +\d+ *$", out, re.M)


def test_show_takes_the_state_of_one_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_state(tmp_path / "a", make_state(PLAN, 4, {0: lane(2)}))
    commands.show(tmp_path / "a")
    out = capsys.readouterr().out
    assert "1 of 2" in out
    assert "lanes of other ranks are missing" in out


def test_diff_of_equal_states_is_equal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_state(tmp_path / "a", state())
    commands.diff(tmp_path / "a", tmp_path / "a")
    assert capsys.readouterr().out == "equal\n"


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({"consumed": 6}, [r"consumed +4 +6"]),
        ({"plan": PLAN | {"seed": 8}}, [r"plan\.seed +7 +8"]),
        ({"plan": PLAN | {"operators": [{"kind": "shuffle"}]}}, [r"plan\.operators +\[\] +-", r"plan\.operators\[0\]"]),
        ({"lanes": {"0": lane(2)}}, [r"lane 1 +\d+ bytes +missing"]),
        ({"lanes": {"0": lane(2), "1": lane(3)}}, [r"lane 1: sequences +2 +3", r"lane 1: digest +(02){16} +(03){16}"]),
        (
            {"lanes": {"0": lane(2), "1": lane(2, 40)}},
            [r"lane 1: operator 0 holds web/2/1/0 +from 10 of 30 tokens, \(\) +from 10 of 40"],
        ),
    ],
)
def test_diff_names_what_differs_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], lines: list[str]
) -> None:
    write_state(tmp_path / "a", state())
    write_state(tmp_path / "b", state(**changes))
    with pytest.raises(typer.Exit) as caught:
        commands.diff(tmp_path / "a", tmp_path / "b")
    assert caught.value.exit_code == 1
    printed = capsys.readouterr().out.splitlines()
    if "consumed" in changes:
        assert printed.pop(0) == "positions differ, 4 and 6 sequences consumed: digests can't be compared"
    header, *found = printed
    assert header.startswith("field")
    assert len(found) == len(lines)
    for line, pattern in zip(found, lines, strict=True):
        assert re.match(pattern, line)


def test_diff_stops_at_20_and_says_how_many_there_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_state(tmp_path / "a", state())
    write_state(tmp_path / "b", state(plan=PLAN | {f"new{number:02d}": 1 for number in range(23)}))
    for everything, shown in ((False, 20), (True, 23)):
        with pytest.raises(typer.Exit):
            commands.diff(tmp_path / "a", tmp_path / "b", everything=everything)
        _, *found = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in found[:shown]] == [f"plan.new{number:02d}" for number in range(shown)]
        assert found[shown:] == ([] if everything else ["… and 3 more; --all shows them"])


def test_merge_joins_the_ranks(tmp_path: Path) -> None:
    write_state(tmp_path / "a", make_state(PLAN, 4, {0: lane(2)}))
    write_state(tmp_path / "b", make_state(PLAN, 4, {1: lane(2)}))
    commands.merge([tmp_path / "b", tmp_path / "a"], tmp_path / "whole")
    assert read_state(tmp_path / "whole") == state()
