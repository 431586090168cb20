from __future__ import annotations

import pytest

from zephon.cli.terminal import counted, number, progress, share, size, stdout, table


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (1 << 20, "1.0 MiB"), (1 << 50, "1024.0 TiB")],
)
def test_size_uses_the_largest_unit(num_bytes: int, text: str) -> None:
    assert size(num_bytes) == text


def test_share_of_nothing_is_a_dash() -> None:
    assert (share(1, 4), share(0, 0), number(1234567)) == ("25.00 %", "-", "1,234,567")


def test_tables_print_brackets_and_colons_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table("field", "value")
    rows.add_row("a[red]b :smile:", "x" * 150)
    stdout().print(rows)
    out = capsys.readouterr().out
    assert "a[red]b :smile:" in out
    assert "x" * 150 in out


def test_a_file_s_lines_end_with_their_last_word(capsys: pytest.CaptureFixture[str]) -> None:
    rows = table("field", "value", left=["value"])
    rows.add_row("a", "long value")
    rows.add_row("b", "short")
    stdout().print(rows)
    assert [line for line in capsys.readouterr().out.splitlines() if line != line.rstrip()] == []


def test_a_count_of_one_is_singular() -> None:
    assert (counted(1, "shard"), counted(0, "shard"), counted(1200, "step")) == ("1 shard", "0 shards", "1,200 steps")


def test_progress_is_silent_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("shards", 2) as advance:
        advance(2)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")
