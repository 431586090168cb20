"""The demo's data: cleaned, chosen by content alone, and the same in each format."""

from __future__ import annotations

import gzip
import json
import random
import tarfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import zstandard

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _demo_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "demo"))


def test_files_that_are_no_text_are_left_out(tmp_path: Path) -> None:
    from texts import read_texts

    line = "a line of text, long enough to be kept\n"
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "plain.txt").write_bytes(b"windows\r\n" + line.encode() * 9)
    (tmp_path / "packed.txt.gz").write_bytes(gzip.compress(line.encode() * 9))
    (tmp_path / "latin.txt").write_bytes(b"\xe9" * 400)
    (tmp_path / "short.txt").write_text(line)
    (tmp_path / "page.html").write_text(f"<head>no</head><p>caf&eacute;</p><p>{line * 9}</p><script>no</script>")
    found = {text.path: text.text for text in read_texts(tmp_path, ["*.txt", "*.gz", "*.html"])}
    assert list(found) == ["b/plain.txt", "packed.txt.gz", "page.html"]
    assert found["b/plain.txt"].startswith("windows\na line")
    assert found["page.html"].startswith("café\n\na line")
    assert "no<" not in found["page.html"]
    assert "<p>" not in found["page.html"]


def test_the_choice_depends_on_content_alone() -> None:
    from texts import Text, choose

    texts = [Text(f"{number}.txt", f"text {number} " * 10) for number in range(100)]
    shuffled = random.Random(3).sample(texts, 100)
    chosen = choose(texts, 5_000)
    assert choose(shuffled, 5_000) == chosen
    assert choose(texts, 2_000) == chosen[: len(choose(texts, 2_000))]
    assert sum(len(text.text) for text in chosen) <= 5_000
    assert len(choose([*texts, *texts], 1 << 30)) == 100


def test_all_formats_hold_the_same_texts_in_order(tmp_path: Path) -> None:
    from shards import write_jsonl, write_parquet, write_tar
    from texts import Text

    texts = [Text(f"{number}.txt", f"naïve text {number}\n" * 50) for number in range(30)]
    expected = [text.text for text in texts]
    tars = write_tar(texts, tmp_path, "a", 8_000)
    lines = write_jsonl(texts, tmp_path, "b", 8_000)
    columns = write_parquet(texts, tmp_path, "c", 8_000)
    assert len(tars) == len(lines) == len(columns) > 1
    members: list[str] = []
    for path in tars:
        with tarfile.open(path) as archive:
            files = [archive.extractfile(name) for name in archive.getnames() if name.endswith(".txt")]
            members += [file.read().decode() for file in files if file is not None]
    assert members == expected
    decoded = b"".join(zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read() for path in lines)
    assert [json.loads(line)["text"] for line in decoded.splitlines()] == expected
    assert [text for path in columns for text in pq.read_table(path)["content"].to_pylist()] == expected


def test_shards_are_equal_bytes_for_equal_texts(tmp_path: Path) -> None:
    from shards import write_jsonl, write_parquet, write_tar
    from texts import Text

    texts = [Text(f"{number}.txt", f"text {number}\n" * 50) for number in range(30)]
    for write in (write_tar, write_jsonl, write_parquet):
        written = []
        for folder in ("one", "two"):
            (tmp_path / folder).mkdir(exist_ok=True)
            written.append([path.read_bytes() for path in write(texts, tmp_path / folder, "s", 4_000)])
        assert written[0] == written[1]


def test_the_report_fails_on_any_difference() -> None:
    from report import compare, failures
    from segments import Outcome, Segment

    losses = {step: 9.0 - step for step in range(4)}
    reference = Outcome(0, losses, {2: "aa", 4: "bb"})
    segment = Segment(ranks=2, until=4, backend="inline")
    later = {2: 7.0, 3: 6.0}
    assert failures([compare(segment, Outcome(2, later, {4: "bb"}), reference)]) == []
    for digests in ({4: "cc"}, {3: "bb"}):
        (fact,) = failures([compare(segment, Outcome(2, later, digests), reference)])
        assert "steps 2 to 3 on 2 ranks: the stream's digest differs" in fact
    for loss in (6.001, float("nan")):
        (fact,) = failures([compare(segment, Outcome(2, {2: 7.0, 3: loss}, {4: "bb"}), reference)])
        assert "losses differ by" in fact


def test_the_benchmark_cuts_and_joins_without_loss() -> None:
    from texts import Text

    spec = spec_from_file_location("benchmark_data", ROOT / "benchmarks" / "data.py")
    assert spec is not None
    assert spec.loader is not None
    benchmark = module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    whole = Text("a.txt", "\n\n".join(f"paragraph {number} " + "x" * (number % 7) for number in range(99)))
    pieces = list(benchmark.cut([whole], 200))
    assert len(pieces) > 5
    assert max(len(piece.text) for piece in pieces) <= 220
    assert "\n".join(piece.text for piece in pieces) == whole.text
    joined = list(benchmark.join(pieces, 500))
    assert min(len(text.text) for text in joined[:-1]) >= 500
    assert "\n".join(text.text for text in joined) == whole.text
