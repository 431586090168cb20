"""Reading a configuration: each mistake is one line that names the field and what would work."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from zephon.config import Config
from zephon.errors import ConfigError
from zephon.read_config import epochs_of, load_config, mixtures

WEB = {"path": "web.jsonl", "weight": 0.7}
CODE = {"path": "code.jsonl", "weight": 0.3}


def raw(**changes: Any) -> dict[str, Any]:
    return {"lanes": 4, "sequence_length": 64, "sources": {"web": WEB, "code": CODE}, **changes}


def sources(**weights: Any) -> dict[str, Any]:
    return {name: {"path": f"{name}.jsonl", **({} if w == "unset" else {"weight": w})} for name, w in weights.items()}


def scheduled(*entries: Mapping[str, Any]) -> dict[str, Any]:
    return {"schedule": list(entries)}


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"sed": 1}, r"the configuration: object contains unknown field `sed`"),
    ({"pack": {"pol": 3}}, r"the configuration: pack: object contains unknown field `pol`"),
    ({"sources": {"web": {**WEB, "paths": "x"}}}, r"sources.*: object contains unknown field `paths`"),
    ({"sequence_length": 0}, r"sequence_length: expected `int` >= 1"),
    ({"sequence_length": "64"}, r"sequence_length: expected `int`, got `str`"),
    ({"lanes": 2.5}, r"lanes: expected `int \| null`, got `float`"),
    ({"micro_batch_size": 0}, r"micro_batch_size: expected `int` >= 1"),
    ({"length": "all"}, r"length: invalid enum value 'all'"),
    ({"length": 0}, r"length: expected `int` >= 1"),
    ({"engine": "fork"}, r"engine: invalid enum value 'fork'"),
    ({"on_bad_sample": "ignore"}, r"on_bad_sample: invalid enum value 'ignore'"),
    ({"pack": {"long": "wrap"}}, r"pack.long: invalid enum value 'wrap'"),
    ({"pack": {"pool": 0}}, r"pack.pool: expected `int` >= 1"),
    ({"sources": {}}, r"sources is empty; name at least one source with its path"),
    ({"sources": {"web": {"weight": 1}}}, r"sources.*missing required field `path`"),
    ({"sources": {"": WEB}}, r"sources has an empty name; give the source a name"),
    ({"sources": {"web": {**WEB, "epochs": 0}}}, r"expected `int` >= 1"),
    ({"sources": {"web": {**WEB, "format": "csv"}}}, r"sources.web.format='csv' is unknown; known: auto, tar, jsonl"),
    ({"sources": {"web": {**WEB, "stage": {"kind": "magic"}}}}, r"sources.web.stage.*'magic'.*known: text, tokens"),
    ({"sources": {"web": {**WEB, "stage": {"kind": "text", "fild": 1}}}}, r"sources.web.stage.*`fild`"),
    ({"lanes": None}, r"an endless stream needs lanes or global_batch_size; set one of them"),
    ({"backend": {"kind": "magic"}}, r"backend.kind: unknown kind 'magic'; known: inline, threads, processes"),
    ({"pack": {"kind": "magic"}}, r"pack.kind: unknown kind 'magic'; known: best_fit, .*, or your own as module:attr"),
    ({"pack": {"kind": "nowhere:Pack"}}, r"pack.kind: can't import 'nowhere:Pack'"),
    ({"pack": {"kind": "zephon.lanes.pad:Pod"}}, r"pack.kind: can't import 'zephon.lanes.pad:Pod'"),
    ({"pack": {"align": 5}}, r"pack.align=5 doesn't divide sequence_length=64; .*a multiple"),
    ({"operators": [{"kind": ""}]}, r"operators\[0\].kind"),
    ({"operators": [{"kind": "magic"}]}, r"operators\[0\].kind: unknown kind 'magic'; known: shuffle, or your own"),
    ({"sources": sources(web=0, code=1)}, r"sources.web.weight=0.0 must be above 0; .*leave it out of an entry"),
    ({"sources": sources(web=-0.5, code=1)}, r"sources.web.weight=-0.5 must be above 0"),
    ({"sources": sources(web="a lot")}, r"sources.web.weight='a lot' is no decimal number"),
    ({"sources": sources(web=float("nan"))}, r"sources.web.weight=nan must be above 0"),
    ({"sources": sources(web=float("inf"))}, r"sources.web.weight=inf must be above 0"),
    ({"sources": sources(web="1e30", code=1)}, r"sources.web.weight='1e30' is out of proportion; use weights between"),
    ({"sources": sources(web=True)}, r"expected `float \| str \| null`, got `bool`"),
    ({"sources": sources(web=1, code="unset")}, r"sources.code.weight is unset and no mix.schedule entry names it"),
    ({"mix": {"by": "bytes"}}, r"mix.by: invalid enum value 'bytes'"),
    ({"mix": scheduled({"from": 0, "weights": {"web": 1}})}, r"from: expected `int` >= 1"),
    (
        {"mix": scheduled({"from": 9, "weights": {"wob": 1}})},
        r"mix.schedule\[0\].weights names wob, not among sources:",
    ),
    ({"mix": scheduled({"from": 9, "weights": {}})}, r"mix.schedule\[0\].weights is empty; name at least one source"),
    ({"mix": scheduled({"from": 9, "weights": {"web": 0}})}, r"mix.schedule\[0\].weights.web=0.0 must be above 0"),
    ({"mix": scheduled({"weights": {"web": 1}})}, r"missing required field `from`"),
    ({"mix": scheduled({"from": 9, "weight": {"web": 1}, "weights": {}})}, r"unknown field `weight`"),
    (
        {"mix": scheduled({"from": 9, "weights": {"web": 1}}, {"from": 9, "weights": {"code": 1}})},
        r"mix.schedule\[1\].from=9 must be above 9, the one before it",
    ),
    ({"pack": {"homogeneous": "sources"}}, r"pack.homogeneous='sources' is unknown; known: none, source, group"),
    ({"pack": {"homogeneous": {"text": ["web"]}}}, r"pack.homogeneous lists source code 0 times; .*exactly one group"),
    ({"pack": {"homogeneous": {"a": ["web", "code"], "b": ["web"]}}}, r"pack.homogeneous lists source web 2 times"),
    ({"pack": {"homogeneous": {"a": ["web", "code", "x"]}}}, r"pack.homogeneous lists x, not among sources"),
    ({"pack": {"homogeneous": "group"}}, r"pack.homogeneous=group, but sources.*declares no metadata named group; use"),
]


@pytest.mark.parametrize(("changes", "message"), MISTAKES, ids=[message[:60] for _, message in MISTAKES])
def test_a_mistake_is_named_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(raw(**changes))
    assert "\n" not in str(caught.value)


def test_a_mapping_a_config_and_a_file_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("lanes: 4\nsequence_length: 64\nsources:\n  web: {path: web.jsonl, weight: 0.7}\n"
                    "  code: {path: code.jsonl, weight: 0.3}\n")  # fmt: skip
    config = load_config(raw())
    assert load_config(path) == load_config(str(path)) == load_config(config) == config
    assert load_config(msgspec.to_builtins(config)) == config


def test_paths_may_be_path_objects() -> None:
    config = load_config(raw(sources={"web": {"path": Path("a") / "b.jsonl"}, "code": {"path": [Path("c.jsonl")]}}))
    here = Path.cwd()
    assert (config.sources["web"].path, config.sources["code"].path) == (f"{here}/a/b.jsonl", [f"{here}/c.jsonl"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lanes: [", r"c.yaml is no YAML: .*line 1"),
        ("a: b: c", r"c.yaml is no YAML: mapping values are not allowed here"),
        ("seed: 1\nlanes: 4\nseed: 2", r"c.yaml, line 3: seed is set twice, first in line 1; keep one"),
        ("- lanes", r"c.yaml must be a mapping, it is list"),
        ("", r"c.yaml must be a mapping, it is NoneType"),
        (
            "lanes: 4\nsequence_length: 64\nsources: {web: {path: x}}\nsed: 1\n",
            r"c.yaml: object contains unknown .*sed",
        ),
        ("!!python/object:os.system {}", r"c.yaml is no YAML: could not determine a constructor"),
    ],
)
def test_a_file_that_is_no_configuration_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(path)
    assert "\n" not in str(caught.value)


def test_a_file_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"can't read the configuration .*none.yaml: No such file"):
        load_config(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match=r"can't read the configuration .*: Is a directory"):
        load_config(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe4\n")
    with pytest.raises(ConfigError, match=r"latin.yaml isn't UTF-8 text: .* at byte 3"):
        load_config(tmp_path / "latin.yaml")


def test_overrides_are_yaml_at_a_place() -> None:
    config = load_config(
        raw(),
        [
            "seed=9",
            "backend.kind=inline",
            "sources.web.path=[/a.tar, /b.tar]",
            "pack.homogeneous=source",
            "length=null",
        ],
    )
    assert (config.seed, config.backend.kind, config.pack.homogeneous) == (9, "inline", "source")
    assert config.sources["web"].path == ["/a.tar", "/b.tar"]
    # Groups that the configuration doesn't have yet are made.
    assert load_config(raw(), ["tokenizer.path=t.json"]).tokenizer is not None


def test_overrides_of_a_config_leave_it_as_it_was() -> None:
    config = load_config(raw())
    assert load_config(config, ["seed=9"]).seed == 9
    assert config.seed == 0
    given = raw()
    load_config(given, ["sources.web.weight=2"])
    assert given == raw()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seed", r"override 'seed' must have the form a.b=value"),
        ("=9", r"override '=9' must have the form a.b=value"),
        ("seed.x=9", r"override 'seed.x=9': seed is a value, not a group of settings"),
        ("seed=[", r"override 'seed=\[': its value is no YAML"),
        ("sed=9", r"unknown field `sed`"),
        ("pack.pool=many", r"pack.pool: expected `int`, got `str`"),
    ],
)
def test_a_wrong_override_is_named(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(raw(seed=1), [override])


@pytest.mark.parametrize(
    ("weights", "whole"),
    [
        ({"web": 0.7, "code": 0.3}, {"code": 3, "web": 7}),
        ({"web": "0.1", "code": 0.1}, {"code": 1, "web": 1}),
        ({"web": 10, "code": 4}, {"code": 2, "web": 5}),
        ({"web": "1e-3", "code": 1}, {"code": 1000, "web": 1}),
        ({"web": "unset", "code": "unset"}, {"code": 1, "web": 1}),
        # A decimal, not the binary number beside it.
        ({"web": 0.1, "code": 0.2}, {"code": 2, "web": 1}),
    ],
)
def test_weights_are_the_smallest_integers_in_proportion(weights: dict[str, Any], whole: dict[str, int]) -> None:
    assert mixtures(load_config(raw(sources=sources(**weights)))) == [(0, whole)]


def test_a_source_without_a_weight_joins_by_the_schedule() -> None:
    mix = scheduled({"from": 10, "weights": {"web": 1, "code": 0.5}}, {"from": 20, "weights": {"code": 2}})
    config = load_config(raw(sources=sources(web=3, code="unset"), mix=mix))
    assert mixtures(config) == [(0, {"web": 1}), (10, {"code": 1, "web": 2}), (20, {"code": 1})]


def test_counting_means_one_epoch_where_none_is_set() -> None:
    config: Config = load_config(raw(length="count", sources={"web": WEB, "code": {**CODE, "epochs": 3}}))
    assert (epochs_of(config, "web"), epochs_of(config, "code")) == (1, 3)
    config = load_config(raw(length=10))
    assert (epochs_of(config, "web"), epochs_of(config, "code")) == (None, None)


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("sed=4", "object contains unknown field `sed`"),
        ("backend.wrkers=3", "backend: object contains unknown field `wrkers`"),
        ("lanes=many", "lanes: expected `int | null`, got `str`"),
        ("sources.web.stage.fild=text", "sources.web.stage (text): Object contains unknown field `fild`"),
    ],
)
def test_a_fault_of_an_override_is_told_as_its_own(override: str, fault: str) -> None:
    config = {"lanes": 2, "sequence_length": 8, "sources": {"web": {"path": "web.jsonl"}}}
    with pytest.raises(ConfigError) as caught:
        load_config(config, ["seed=3", override])
    assert str(caught.value).startswith(f"override {override!r}: {fault}")


def test_a_fault_of_the_file_isnt_laid_on_an_override() -> None:
    config = {"lanes": 2, "sequence_lenght": 8, "sources": {"web": {"path": "web.jsonl"}}}
    with pytest.raises(ConfigError, match=r"^the configuration: "):
        load_config(config, ["seed=3"])


@pytest.mark.parametrize(
    ("settings", "end"),
    [
        ({"seguuence_length": 8}, "unknown field `seguuence_length`; did you mean 'sequence_length'?"),
        ({"backend": {"worker": 2}}, "unknown field `worker`; did you mean 'workers'?"),
        ({"backend": {"on_bad_sample": "skip"}}, "`on_bad_sample`; on_bad_sample is a setting of the top level"),
        ({"workers": 2}, "unknown field `workers`; workers is a setting of backend"),
        ({"xyzzy": 1}, "unknown field `xyzzy`"),
    ],
)
def test_an_unknown_field_names_one_that_is_near(settings: dict[str, Any], end: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_config({"sources": {"a": {"path": "x"}}, "sequence_length": 4, **settings})
    assert str(raised.value).endswith(end)
