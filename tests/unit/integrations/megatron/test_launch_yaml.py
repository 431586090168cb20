"""A Megatron YAML: what is the stream's, what is Megatron's, and what the launcher does to a script."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml
from streams import stream
from zephon_megatron import launch as launcher
from zephon_megatron.launch import launch_provider, main, replaced_provider, run_script, split_command
from zephon_megatron.launch_yaml import StreamSettings, _leaves, read_launch

from zephon import ConfigError

CONFIGS = sorted((Path(__file__).parents[4] / "configs" / "megatron").glob("*.yaml"))


def written(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_shipped_yaml_is_understood(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parents[2])
    launch = read_launch(path)
    length = int(launch.arguments[launch.arguments.index("--seq-length") + 1])
    if launch.backend == "zephon":
        assert launch.train is not None
        streams = [launch.train, *(one for one in (launch.valid, launch.test) if one)]
        for one in streams:
            assert one.load(sequence_length=length, global_batch_size=16).sequence_length == length
    else:
        assert launch.train is None
    # Whatever shipped files say of evaluation fits together.
    if launch.backend == "zephon" and launch.valid is None:
        assert launch.arguments[launch.arguments.index("--eval-iters") + 1] == "0"


def test_there_are_yaml_files() -> None:
    assert len(CONFIGS) >= 4


def test_arguments_are_those_of_a_command_line(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {
            "model": {"num_layers": 2, "swiglu": True, "bias_linear": None, "untie": False, "lr": 3e-4},
            "seq-length": 8,
            "--data-cache-path": "a b",
            "rampup_batch_size": [4, 4, 100],
        },
    )
    launch = read_launch(path, ["model.num_layers=3", "train_iters=7"])
    assert launch.backend is None
    assert shlex.join(launch.arguments) == (
        "--num-layers 3 --swiglu --lr 0.0003 --seq-length 8 --data-cache-path 'a b' --rampup-batch-size 4 4 100 "
        "--train-iters 7"
    )


def test_another_backends_settings_are_arguments(tmp_path: Path) -> None:
    path = written(tmp_path, {"data": {"backend": "megatron", "data_path": ["1", "x"]}, "seq_length": 8})
    launch = read_launch(path)
    assert (launch.backend, launch.train) == ("megatron", None)
    assert shlex.join(launch.arguments) == "--seq-length 8 --data-path 1 x"


def test_the_data_section_is_the_stream(tmp_path: Path) -> None:
    config = written(tmp_path, stream(tmp_path / "data"))
    file = tmp_path / "launch.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "data": {
                    "backend": "zephon",
                    "config": str(config),
                    "pack": {"pool": 9, "kind": "concat"},
                    "begins_at": 8,
                    "save": "here",
                    "valid": {"config": str(config), "length": 12},
                },
                "seq_length": 32,
            }
        )
    )
    launch = read_launch(file, ["data.pack.pool=7", "data.sources.web.epochs=9", "data.valid.restart=true"])
    assert launch.arguments == ("--seq-length", "32")
    assert (launch.begins_at, launch.save, launch.load) == (8, "here", None)
    assert launch.train is not None
    assert launch.valid is not None
    train = launch.train.load(sequence_length=32, global_batch_size=8)
    assert (train.pack.pool, train.pack.kind, train.sources["web"].epochs) == (7, "concat", 9)
    # The file's own settings stay where nothing is set over them.
    assert (train.lanes, train.seed, len(train.sources)) == (4, 5, 2)
    valid = launch.valid.load(sequence_length=32, global_batch_size=8)
    assert (valid.length, valid.restart, valid.pack.pool) == (12, True, 4)


def test_the_whole_section_can_come_from_the_command_line(tmp_path: Path) -> None:
    path = written(tmp_path, {"seq_length": 16, "global_batch_size": 8})
    launch = read_launch(path, ["data.backend=zephon", "data.path=a/*.jsonl", "data.stage={kind: tokens}"])
    assert launch.train is not None
    config = launch.train.load(sequence_length=16, global_batch_size=8)
    assert config.sources["data"].path == str(Path.cwd() / "a/*.jsonl")
    assert config.sources["data"].stage == {"kind": "tokens"}
    assert (config.sequence_length, config.global_batch_size) == (16, 8)


def test_values_come_through_as_they_are() -> None:
    text = {"path": '/it\'s: [a], "b" #c', "weight": "0.1", "epochs": None}
    launch_like = {"sources": {"a": text}, "pack": {"homogeneous": {"g": ["a"]}}, "lanes": 4}
    settings = StreamSettings(overrides=tuple(_leaves(launch_like)))
    config = settings.load(sequence_length=16, global_batch_size=8)
    assert config.sources["a"].path == text["path"]
    assert config.sources["a"].weight == "0.1"
    assert config.pack.homogeneous == {"g": ["a"]}


@pytest.mark.parametrize(
    ("content", "overrides", "says"),
    [
        ({"data": "zephon"}, [], "data='zephon' is no section"),
        ({"data": {"backend": "zephon"}}, [], "data names no data"),
        ({"data": {"backend": "zephon", "config": {"a": 1}}}, [], "must be the path of a configuration"),
        ({"data": {"backend": "zephon", "config": "a.yaml", "path": "b"}}, [], "short for one source"),
        ({"data": {"backend": "zephon", "stage": {"kind": "text"}, "lanes": 4}}, [], "short for one source"),
        ({"data": {"backend": "zephon", "config": "a.yaml", "valid": "b"}}, [], "data.valid='b' is no section"),
        ({"data": {"backend": "zephon", "config": "a", "valid": {"save": "b"}}}, [], "data.valid.save"),
        ({"data": {"backend": "zephon", "config": "a.yaml", "begins_at": -1}}, [], "begins_at=-1"),
        ({"data": {"backend": "zephon", "config": "a.yaml", "begins_at": True}}, [], "begins_at=True must be a number"),
        ({"data": {"backend": "zephon", "config": "a.yaml", "save": 5}}, [], "data.save=5 must be the path"),
        ({"data": {"backend": "zephon", "config": "a.yaml"}}, ["data.load=true"], "data.load=True must be the path"),
        ({"data": {"config": "a.yaml"}}, [], "run.yaml: data.backend isn't set; write data.backend: zephon"),
        ({"data": {"data_path": ["x"], "split": "1,0,0"}}, [], "data.backend isn't set"),
        ({"data": {"backend": None, "path": "a"}}, [], "data.backend isn't set"),
        ({"data": {}}, [], "data.backend isn't set"),
        ({"data": None}, [], "data=None is no section"),
        ({"data": {"backend": True}}, [], "data.backend=True is no name"),
        ({"a": {"seq_length": 1}, "b": {"seq-length": 2}}, [], "--seq-length is set twice"),
        ({"a": {"b": {"c": 1}}}, [], "a.b is a section in a section"),
        ({"a": 1}, ["a.b=2"], "a is a value"),
        ({"a": 1}, ["a=[1"], "its value is no YAML"),
    ],
)
def test_what_makes_no_sense_is_an_error(
    tmp_path: Path, content: dict[str, Any], overrides: list[str], says: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        read_launch(written(tmp_path, content), overrides)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("data: {backend: zephon, path: a}\nseq_length: 8\ndata: {backend: megatron}\n", "line 3: data is set twice"),
        ("data:\n  backend: zephon\n  path: a\n  path: b\n", "line 4: path is set twice, first in line 3; keep one"),
        ("train:\n  lr: 1\n  lr: 2\n", "line 3: lr is set twice"),
    ],
)
def test_a_key_that_is_set_twice_is_an_error(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        read_launch(path)
    assert str(raised.value).startswith(f"{path}, {says}")
    with pytest.raises(ConfigError, match="line 1: path is set twice"):
        read_launch(written(tmp_path, {"seq_length": 8}), ["data={backend: zephon, path: a, path: b}"])


def test_an_unknown_setting_of_the_stream_is_named(tmp_path: Path) -> None:
    launch = read_launch(written(tmp_path, {"data": {"backend": "zephon", "path": "a", "packs": 1, "lanes": 4}}))
    assert launch.train is not None
    with pytest.raises(ConfigError, match="packs"):
        launch.train.load(sequence_length=16, global_batch_size=8)


def test_a_command_is_overrides_then_the_script() -> None:
    assert split_command(["data.a=b", "x.py", "--c", "d=e"]) == (["data.a=b"], "x.py", ["--c", "d=e"])
    with pytest.raises(ConfigError, match="no script"):
        split_command(["data.a=b"])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--config", "{none}", "x.py"], "can't read"),
        (["--config", "{file}"], "no script is named"),
        (["--config", "{file}", "absent.py"], "there is no script absent.py"),
    ],
)
def test_a_wrong_command_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    file = written(tmp_path, {"seq_length": 8})
    assert main([word.format(file=file, none=tmp_path / "none.yaml") for word in words]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1


def made_modules(pretrain: Any) -> list[ModuleType]:
    modules = [ModuleType("one"), ModuleType("two")]
    for module in modules:
        module.pretrain = pretrain  # type: ignore[attr-defined]
    return modules


def test_of_a_call_of_pretrain_only_the_provider_is_replaced() -> None:
    def pretrain(cfg: Any, train_valid_test_dataset_provider: Any, model_type: Any, *, store: Any = None) -> Any:
        return cfg, train_valid_test_dataset_provider, model_type, store

    modules = made_modules(pretrain)
    with replaced_provider(modules, "ours") as calls:  # type: ignore[arg-type]
        assert modules[0].pretrain(1, "theirs", 2, store=3) == (1, "ours", 2, 3)
        assert modules[1].pretrain(cfg=1, train_valid_test_dataset_provider="theirs", model_type=2)[1] == "ours"
    assert len(calls) == 2
    assert all(module.pretrain is pretrain for module in modules)


def test_a_pretrain_that_takes_no_provider_is_an_error() -> None:
    def pretrain(cfg: Any) -> None: ...

    modules = made_modules(pretrain)
    with pytest.raises(ConfigError, match="has no parameter"), replaced_provider(modules, None):  # type: ignore[arg-type]
        raise AssertionError("entered")


def test_a_launch_of_another_backend_has_no_provider(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="isn't Zephon's"):
        launch_provider(read_launch(written(tmp_path, {"data": {"backend": "megatron"}})))


def test_evaluation_without_a_stream_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = read_launch(written(tmp_path, {"data": {"backend": "zephon", "path": "a", "lanes": 4}}))
    args = SimpleNamespace(eval_iters=3, seq_length=16, global_batch_size=8)
    provider = launch_provider(launch, get_args=lambda: args)
    monkeypatch.setattr(launcher, "build_iterators", lambda args, streams, vp_stage: streams())
    with pytest.raises(ConfigError, match=r"data\.valid"):
        provider([1, 0, 0])


SCRIPT = """
import json, pathlib, sys
import beside_it
if __name__ == "__main__":
    pathlib.Path("told.json").write_text(json.dumps([sys.argv, beside_it.VALUE]))
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "beside_it.py").write_text("VALUE = 5\n")
    path = tmp_path / "scripts" / "train.py"
    path.write_text(SCRIPT)
    return path


def test_with_another_backend_the_script_runs_as_it_is(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_training", lambda: pytest.fail("megatron.training was imported"))
    before = list(sys.argv), list(sys.path)
    assert (
        main(["--config", str(CONFIGS[[path.stem for path in CONFIGS].index("stock")]), str(script), "--lr", "1"]) == 0
    )
    argv, value = json.loads(Path("told.json").read_text())
    assert argv[0] == str(script)
    paths = ["--data-path", "0.7", "data/web_text_document", "0.3", "data/code_text_document"]
    assert argv[-9:] == [*paths, "--split", "99,1,0", "--lr", "1"]
    assert "--dataloader-type" not in argv
    assert value == 5
    assert (sys.argv, sys.path) == before


def test_a_script_that_never_trains_is_an_error(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = made_modules(lambda train_valid_test_dataset_provider: None)
    monkeypatch.setattr(launcher, "_training", lambda: modules)
    launch = read_launch(written(script.parent, {"data": {"backend": "zephon", "path": "a", "lanes": 4}}))
    with pytest.raises(ConfigError, match=r"without calling megatron\.training\.pretrain"):
        run_script(launch, str(script), ["--last"])
    assert json.loads(Path("told.json").read_text())[0][1:] == ["--dataloader-type", "external", "--last"]


@pytest.mark.parametrize(
    "error", [ModuleNotFoundError("No module named 'megatron.training'"), ImportError("cannot import name 'x'\nof y")]
)
def test_without_megatron_training_there_is_one_line(
    script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: ImportError
) -> None:
    class Absent:
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
            if name == "megatron.training":
                raise error

    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    for name in [name for name in sys.modules if name.startswith("megatron.training")]:
        monkeypatch.delitem(sys.modules, name)
    file = written(script.parent, {"data": {"backend": "zephon", "path": "a", "lanes": 4}})
    assert main(["--config", str(file), str(script)]) == 2
    told = capsys.readouterr().err
    assert told.startswith("zephon_megatron.launch: megatron.training can't be imported (")
    assert "put Megatron-LM's folder on PYTHONPATH" in told
    assert told.count("\n") == 1
    with pytest.raises(ConfigError, match=r"megatron\.training can't be imported"):
        launch_provider(read_launch(file))([1, 0, 0])


@pytest.mark.parametrize("backend", ["Zephon", "[zephon]", "zephon2"])
def test_a_backend_that_is_nearly_ours_is_no_other_one(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "near.yaml"
    path.write_text(f"data: {{backend: {backend}, config: stream.yaml}}")
    with pytest.raises(ConfigError, match=r"write data\.backend: zephon"):
        read_launch(path, [])
