"""From a path to shards."""

from __future__ import annotations

from pathlib import Path

import pytest
from braceexpand import braceexpand

from zephon.errors import ConfigError, StoreError
from zephon.formats.expand import braces, expand
from zephon.formats.names import format_of


@pytest.mark.parametrize(
    "pattern",
    [
        "a.tar",
        "web-{000..012}.tar",
        "{a,b}",
        "x{a,b}y{0..2}z",
        "{a,b{1..3},{c,d}e}",
        "{3..1}",
        "{0..10..5}",
        "{08..11}",
        "{a..e}",
        "pre{,post}",
        "{}",
        "{single}",
        "{a{b,c}}",
    ],
)
def test_braces_are_those_of_bash(pattern: str) -> None:
    assert braces(pattern) == list(braceexpand(pattern))


@pytest.mark.parametrize("pattern", ["un{balanced", "un}balanced", "{a,{b,c}"])
def test_braces_that_pair_with_none_stand_for_themselves(pattern: str) -> None:
    assert all(text[0] == pattern[0] for text in braces(pattern))


def test_too_many_paths_are_refused_before_they_are_made() -> None:
    with pytest.raises(ConfigError, match=r"sources\.web\.path: .*1,000,000"):
        braces("{0..9999999999}", place="sources.web.path")
    with pytest.raises(ConfigError, match="stands for"):
        braces("{0..9999}{0..9999}")


def make(folder: Path, *names: str) -> list[str]:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")
    return [str(folder / name) for name in names]


def test_folder_gives_known_names_sorted(tmp_path: Path) -> None:
    make(tmp_path, "b.tar", "a.jsonl.gz", "README.md", ".hidden.tar", "a.tar.idx", "a.tar.zephon-index", "sub/c.tar")
    assert expand(str(tmp_path)) == [str(tmp_path / "a.jsonl.gz"), str(tmp_path / "b.tar")]


def test_glob_is_sorted_and_list_keeps_its_order(tmp_path: Path) -> None:
    a, b, c = make(tmp_path, "a.tar", "b.tar", "c.tar")
    assert expand(str(tmp_path / "*.tar")) == [a, b, c]
    assert expand([c, a]) == [c, a]
    assert expand(str(tmp_path / "{c,a}.tar")) == [c, a]


def test_a_name_with_special_characters_means_itself(tmp_path: Path) -> None:
    shards = make(tmp_path, "a[1]{x,y}.tar")
    assert expand(shards) == shards


@pytest.mark.parametrize("pattern", ["nothing-*.tar", "missing.tar", "{000..001}.tar"])
def test_nothing_found_names_the_field(tmp_path: Path, pattern: str) -> None:
    make(tmp_path, "000.tar")
    with pytest.raises(StoreError, match=r"sources\.web\.path: .* matches no shard"):
        expand(str(tmp_path / pattern), place="sources.web.path")


def test_empty_folder_names_the_field(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"sources\.web\.path: the folder"):
        expand(str(tmp_path), place="sources.web.path")


def test_a_shard_occurs_once(tmp_path: Path) -> None:
    (shard,) = make(tmp_path, "a.tar")
    for path in ([shard, shard], [shard, str(tmp_path)], [shard, str(tmp_path / "." / "a.tar")]):
        with pytest.raises(ConfigError, match="occurs twice"):
            expand(path)


@pytest.mark.parametrize("path", [[], ""])
def test_no_path_is_refused(path: str | list[str]) -> None:
    with pytest.raises(ConfigError):
        expand(path)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.tar", "tar"),
        ("a.b.jsonl", "jsonl"),
        ("a.ndjson.zst", "jsonl"),
        ("a.json.gz", "jsonl"),
        ("A.PARQUET", "parquet"),
    ],
)
def test_format_by_name(name: str, kind: str) -> None:
    assert format_of(name, "auto", place="sources.web") == kind


@pytest.mark.parametrize("name", ["a.tar.gz", "a.txt", "a", "a.gz"])
def test_unknown_format_names_the_field(name: str) -> None:
    with pytest.raises(ConfigError, match=r"sources\.web\.format"):
        format_of(name, "auto", place="sources.web")
    assert format_of(name, "jsonl", place="sources.web") == "jsonl"
