"""A configuration's paths mean the same files wherever the program goes, and what is no path is told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from streams import BACKENDS, rows, stream, take

from zephon import ConfigError, Loader, StoreError, load_config, stream_digest

WAYS: dict[str, dict[str, Any]] = {
    **{name: {"backend": backend} for name, backend in BACKENDS.items()},
    "engine process": {"engine": "process", "backend": BACKENDS["threads"]},
}


def one(path: Any, **settings: Any) -> dict[str, Any]:
    stage = {"kind": "tokens"}
    return {"lanes": 4, "sequence_length": 32, "sources": {"web": {"path": path, "stage": stage}}, **settings}


def path_of(path: Any) -> Any:
    return load_config(one(path)).sources["web"].path


@pytest.mark.parametrize("way", WAYS)
def test_the_folder_may_change_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    config = {**stream(tmp_path), **WAYS[way]}
    relative = msgspec.to_builtins(config)
    relative["index_dir"] = "index"
    for name, source in relative["sources"].items():
        source["path"] = f"{name}/*.jsonl"
    (tmp_path / "elsewhere").mkdir()
    with Loader(config) as loader:
        expected, digest = rows(take(loader, 12)), stream_digest(loader.state_dict())
        plan = loader.plan
    monkeypatch.chdir(tmp_path)
    read, made = load_config(relative), Loader(relative)
    monkeypatch.chdir(tmp_path / "elsewhere")
    with Loader(read) as later:
        assert rows(take(later, 2)) == expected[:2]
    with made:
        given = take(made, 6)
        monkeypatch.chdir("/")
        assert rows([*given, *take(made, 6)]) == expected
        # Paths are no order.
        assert (made.plan, stream_digest(made.state_dict())) == (plan, digest)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_relative_paths_begin_at_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert path_of("a/b-{000..099}.tar") == f"{tmp_path}/a/b-{{000..099}}.tar"
    assert path_of(["a.tar", "/b.tar", "s3://c/d.tar"]) == [f"{tmp_path}/a.tar", "/b.tar", "s3://c/d.tar"]
    assert path_of("{/x/a,b/{c,d}}.tar") == ["/x/a.tar", f"{tmp_path}/b/c.tar", f"{tmp_path}/b/d.tar"]
    given = one("/a.tar", tokenizer={"path": "t.json"}, index_dir="i", spill={"dir": "s"})
    config = load_config(given)
    assert config.tokenizer is not None
    assert (config.tokenizer.path, config.index_dir, config.spill.dir) == tuple(
        str(tmp_path / name) for name in ("t.json", "i", "s")
    )
    assert load_config(config) is config


def test_chat_templates_are_paths_where_they_are_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tokenizer = {"path": "t.json", "eos": "e"}
    for template, expected in (("c.jinja", f"{tmp_path}/c.jinja"), ("{{ messages }}", "{{ messages }}"), (None, None)):
        stage = {"kind": "chat", "template": template}
        config = load_config({**one("a"), "tokenizer": tokenizer, "sources": {"web": {"path": "a", "stage": stage}}})
        assert config.sources["web"].stage["template"] == expected


@pytest.mark.parametrize("name", ["of [ab]", "of {a,b}", "of *"])
def test_a_folder_whose_name_is_a_pattern_is_taken_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    for shard in ("a.tar", "b.tar"):
        (folder / shard).touch()
    monkeypatch.chdir(folder)
    both = [f"{folder}/a.tar", f"{folder}/b.tar"]
    assert path_of("*.tar") == both
    assert path_of("{b,a}.tar") == both[::-1]
    assert path_of("a.tar") == both[0]
    # What isn't there is the loader's to tell.
    assert path_of("c*.tar") == "c*.tar"


def test_a_folder_that_is_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match=r"sources\.web\.path is relative, and the current folder is gone"):
        path_of("a.tar")
    assert path_of("/a.tar") == "/a.tar"


@pytest.mark.parametrize("way", WAYS)
def test_a_name_that_is_no_utf8_is_read_or_told(tmp_path: Path, way: str) -> None:
    config = {**stream(tmp_path), **WAYS[way]}
    shard = tmp_path / "web" / "shard-000.jsonl"
    shard.rename(os.fsdecode(os.fsencode(shard.parent) + b"/shard-\xff.jsonl"))
    config["sources"]["web"]["path"] = str(shard.parent)
    if way in ("inline", "threads"):
        with Loader(config) as loader:
            assert len(take(loader, 3)) == 3
        return
    with pytest.raises(ConfigError, match=r"sources\.web\.path: .*udcff.*isn't UTF-8.* set backend\.kind=threads"):
        take(Loader(config), 1)
    for changes in ({"index_dir": "/i\udcff"}, {"spill": {"dir": "/s\udcff"}}):
        with pytest.raises(ConfigError, match=r"(index_dir|spill\.dir): .*isn't UTF-8"):
            load_config({**config, **changes})


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("x" * 5000, r"^sources\.web\.path: .*x'… \(5,\d\d\d characters\): File name too long; check the path"),
        ("/" + "a/" * 2500, r"^sources\.web\.path: .* characters\): File name too long"),
        ("/none/" + "*" * 5000, r"^sources\.web\.path: .* characters\) matches no shard"),
        # Longer than any name, but no name.
        ("/none/{" + "a," * 300 + "b}.jsonl", r"^sources\.web\.path: '/none/a\.jsonl' matches no shard"),
    ],
)
def test_paths_that_are_too_long_are_told_in_short(path: str, says: str) -> None:
    with pytest.raises(StoreError, match=says) as raised:
        take(Loader(one(path)), 1)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("settings", [{"index_dir": "a\0b"}, {"tokenizer": {"path": "a\0b"}}, {"spill": {"dir": "\0"}}])
def test_a_zero_byte_is_told(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^(index_dir|tokenizer\.path|spill\.dir): .* holds a zero byte"):
        load_config(one("a.tar", **settings))
