"""The spill's folder stays within its bound."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from spilled_units import file_of, files_in, spilled, units_in, writer

from zephon.errors import ConfigError
from zephon.formats.units import open_units


def test_units_used_longest_ago_make_room(tmp_path: Path) -> None:
    for unit in range(3):
        spilled(tmp_path, unit, writer(b"x" * 76), max_bytes=320)
        os.utime(file_of(tmp_path, unit), (unit, unit))
    open_units.cache_clear()
    assert spilled(tmp_path, 0, writer(b"never"), max_bytes=320) == b"x" * 76
    assert spilled(tmp_path, 3, writer(b"y" * 76), max_bytes=320) == b"y" * 76
    assert units_in(tmp_path) == sorted(file_of(tmp_path, unit).name for unit in (0, 2, 3))


def test_the_bound_holds_over_runs_and_sizes(tmp_path: Path) -> None:
    for unit in range(60):
        spilled(tmp_path, unit, writer(b"x" * (unit * 37 % 250)), max_bytes=1000)
        open_units.cache_clear()
        assert sum(path.stat().st_size for path in tmp_path.glob("*.unit")) <= 1000
        assert file_of(tmp_path, unit).exists()
    assert len(units_in(tmp_path)) > 3


@pytest.mark.parametrize("damage", [None, "", "many", "999999999999"])
def test_a_wrong_count_of_bytes_is_corrected(tmp_path: Path, damage: str | None) -> None:
    for unit in range(3):
        spilled(tmp_path, unit, writer(b"x" * 76), max_bytes=500)
    room = tmp_path / "room"
    if damage is None:
        room.unlink()
    else:
        room.write_text(damage)
    spilled(tmp_path, 3, writer(b"x" * 76), max_bytes=500)
    assert int(room.read_text()) == 400
    assert len(units_in(tmp_path)) == 4


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    old, new = tmp_path / "old.tmp", tmp_path / "new.tmp"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    spilled(tmp_path, 0, writer(b"x"))
    assert files_in(tmp_path) == sorted([file_of(tmp_path, 0).name, "new.tmp"])


def test_a_large_unit_that_never_fits_names_pack(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"s: .*spill\.max_bytes=300 .*zephon pack"):
        spilled(tmp_path, 0, writer(b"x" * 301), max_bytes=300)
    assert list(tmp_path.iterdir()) == []
