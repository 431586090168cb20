"""Reading a configuration from YAML or a mapping, and the checks that need no data."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from difflib import get_close_matches
from math import gcd
from pathlib import Path
from typing import Any

import msgspec

from zephon import config as config_structs
from zephon.config import Config, Struct
from zephon.errors import ConfigError
from zephon.read_config_images import check_attachments, check_budgets, source_stage
from zephon.read_config_paths import with_absolute_paths
from zephon.registry import BACKENDS, FORMATS, OPERATORS, PACKERS, resolve
from zephon.stages import stage_metadata
from zephon.yaml_text import parse_yaml

# Where each group of settings stands, for messages about one that stands elsewhere.
PLACES = {
    "Config": "the top level",
    "Source": "sources.<name>",
    "OperatorConfig": "an entry of operators",
}
UNKNOWN = re.compile(r"unknown field `([^`]+)`")

ConfigLike = Config | Mapping[str, Any] | str | os.PathLike[str]


def load_config(config: ConfigLike, overrides: Sequence[str] = ()) -> Config:
    """Return the checked configuration in a YAML file, a mapping or a Config, with overrides `a.b=value`.

    Values of overrides are YAML. Relative paths are made absolute, from the current folder. Raises ConfigError,
    naming the field, before any data is read.
    """
    if isinstance(config, Config) and not overrides:
        validate(config)
        return with_absolute_paths(config)
    if isinstance(config, Config):
        raw: Any = msgspec.to_builtins(config)
    elif isinstance(config, Mapping):
        raw = _copy(config)
    else:
        raw = _read(Path(config))
    for override in overrides:
        _set(raw, override)
    try:
        result = msgspec.convert(raw, Config)
    except msgspec.ValidationError as error:
        place = "the configuration" if isinstance(config, Config | Mapping) else str(config)
        raise ConfigError(f"{_origin(str(error), overrides) or place}: {_readable(str(error))}") from error
    try:
        validate(result)
    except ConfigError as error:
        # Stages check their own fields.
        for override in overrides:
            parent, _, field = override.partition("=")[0].strip().rpartition(".")
            if str(error).startswith(parent) and f"unknown field `{field}`" in str(error):
                raise ConfigError(f"override {override!r}: {error}") from error
        raise
    return with_absolute_paths(result)


def validate(config: Config) -> None:
    """Raise ConfigError for settings that can't work together."""
    if not config.sources:
        raise ConfigError("sources is empty; name at least one source with its path")
    if config.length is None and config.lanes is None and config.global_batch_size is None:
        raise ConfigError("an endless stream needs lanes or global_batch_size; set one of them")
    resolve(BACKENDS, config.backend.kind, place="backend.kind")
    resolve(PACKERS, config.pack.kind, place="pack.kind")
    if config.sequence_length % config.pack.align:
        raise ConfigError(
            f"pack.align={config.pack.align} doesn't divide sequence_length={config.sequence_length}; "
            "choose a sequence_length that is a multiple"
        )
    for name, source in config.sources.items():
        if not name:
            raise ConfigError("sources has an empty name; give the source a name")
        source_stage(config, name)
        if source.format not in ("auto", *FORMATS):
            raise ConfigError(f"sources.{name}.format={source.format!r} is unknown; known: auto, {', '.join(FORMATS)}")
    for position, operator in enumerate(config.operators):
        resolve(OPERATORS, operator.kind, place=f"operators[{position}].kind")
    mixtures(config)
    _check_groups(config)
    check_attachments(config)
    check_budgets(config)


def mixtures(config: Config) -> list[tuple[int, dict[str, int]]]:
    """Return (from, weights) of each mixture, the first from 0; weights are the smallest integers in proportion.

    Raises ConfigError for weights that aren't above 0 or name no source.
    """
    given = {name: source.weight for name, source in config.sources.items()}
    schedule = config.mix.schedule
    if all(weight is None for weight in given.values()):
        given = dict.fromkeys(given, 1.0)
    first = {name: weight for name, weight in given.items() if weight is not None}
    entries = [(0, _integers(first, "sources.{}.weight"))]
    for number, entry in enumerate(schedule):
        place = f"mix.schedule[{number}]"
        if entry.from_ <= entries[-1][0]:
            raise ConfigError(f"{place}.from={entry.from_} must be above {entries[-1][0]}, the one before it")
        strangers = sorted(set(entry.weights) - set(config.sources))
        if strangers:
            raise ConfigError(
                f"{place}.weights names {', '.join(strangers)}, not among sources: {', '.join(sorted(config.sources))}"
            )
        if not entry.weights:
            raise ConfigError(f"{place}.weights is empty; name at least one source")
        entries.append((entry.from_, _integers(entry.weights, place + ".weights.{}")))
    never = sorted(set(config.sources) - {name for _, weights in entries for name in weights})
    if never:
        raise ConfigError(
            f"sources.{never[0]}.weight is unset and no mix.schedule entry names it; set a weight above 0"
        )
    return entries


def epochs_of(config: Config, source: str) -> int | None:
    """Return a source's epochs; counting a stream needs an end, so that one is meant where none is set."""
    epochs = config.sources[source].epochs
    return 1 if epochs is None and config.length == "count" else epochs


def _integers(weights: Mapping[str, float | str | None], place: str) -> dict[str, int]:
    decimals: dict[str, Decimal] = {}
    for name in sorted(weights):
        where = place.format(name)
        try:
            value = Decimal(str(weights[name]))
        except InvalidOperation as error:
            raise ConfigError(f"{where}={weights[name]!r} is no decimal number") from error
        if not value.is_finite() or value <= 0:
            raise ConfigError(
                f"{where}={weights[name]!r} must be above 0; to switch a source off, leave it out of an entry"
            )
        if value.adjusted() < -18 or value.adjusted() > 18:
            raise ConfigError(f"{where}={weights[name]!r} is out of proportion; use weights between 1e-18 and 1e18")
        decimals[name] = value
    ratios = {name: value.as_integer_ratio() for name, value in decimals.items()}
    common = 1
    for _, denominator in ratios.values():
        common = common * denominator // gcd(common, denominator)
    whole = {name: numerator * (common // denominator) for name, (numerator, denominator) in ratios.items()}
    divisor = gcd(*whole.values())
    return {name: value // divisor for name, value in whole.items()}


def _check_groups(config: Config) -> None:
    rule = config.pack.homogeneous
    if isinstance(rule, dict):
        listed = [source for sources in rule.values() for source in sources]
        for source in config.sources:
            if listed.count(source) != 1:
                raise ConfigError(
                    f"pack.homogeneous lists source {source} {listed.count(source)} times; "
                    "each source belongs to exactly one group"
                )
        strangers = sorted(set(listed) - set(config.sources))
        if strangers:
            raise ConfigError(f"pack.homogeneous lists {', '.join(strangers)}, not among sources")
    elif rule not in ("none", "source", "group"):
        raise ConfigError(f"pack.homogeneous={rule!r} is unknown; known: none, source, group, or {{group: [sources]}}")
    elif rule == "group":
        for name in config.sources:
            if "group" not in stage_metadata(source_stage(config, name)):
                raise ConfigError(
                    f"pack.homogeneous=group, but sources.{name}.stage declares no metadata named group; "
                    "use a function stage with metadata: [group]"
                )


def _read(path: Path) -> Any:
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(f"can't read the configuration {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the configuration {path} isn't UTF-8 text: {error.reason} at byte {error.start}") from error
    raw = parse_yaml(text, place=f"the configuration {path}")
    if not isinstance(raw, dict):
        raise ConfigError(f"the configuration {path} must be a mapping, it is {type(raw).__name__}")
    return raw


def _set(raw: dict[str, Any], override: str) -> None:
    name, equals, text = override.partition("=")
    if not equals or not name:
        raise ConfigError(f"override {override!r} must have the form a.b=value")
    value = parse_yaml(text, place=f"override {override!r}: its value")
    *parents, last = name.strip().split(".")
    node = raw
    for parent in parents:
        inner = node.get(parent)
        if inner is None:
            inner = node[parent] = {}
        if not isinstance(inner, dict):
            raise ConfigError(f"override {override!r}: {parent} is a value, not a group of settings")
        node = inner
    node[last] = value


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copy(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_copy(inner) for inner in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _origin(message: str, overrides: Sequence[str]) -> str | None:
    """Return the override that msgspec's message is about, or None where it is about the file."""
    place = message.partition(" - at `")[2].rstrip("`").removeprefix("$").removeprefix(".")
    unknown = UNKNOWN.search(message)
    field = ".".join(part for part in (place, unknown[1] if unknown else "") if part)
    for override in reversed(overrides):
        name = override.partition("=")[0].strip()
        if field and (name == field or name.startswith(f"{field}.") or field.startswith((f"{name}.", f"{name}["))):
            return f"override {override!r}"
    return None


def _fields() -> list[str]:
    """Return the names of all settings but those of stages, which check their own."""
    return sorted({name for kind in _groups() for name in kind.__struct_fields__})


def _owners(field: str) -> str:
    """Return the groups of settings that have a field, as the configuration names them."""
    owners = (kind for kind in _groups() if field in kind.__struct_fields__)
    return " and ".join(PLACES.get(kind.__name__, kind.__name__.lower()) for kind in owners)


def _groups() -> list[type[Struct]]:
    return [kind for kind in vars(config_structs).values() if isinstance(kind, type) and issubclass(kind, Struct)]


def _readable(message: str) -> str:
    """Turn msgspec's "… - at `$.a.b`" into "a.b: …"."""
    text, _, place = message.partition(" - at `")
    field = place.rstrip("`").removeprefix("$").removeprefix(".")
    unknown = UNKNOWN.search(text)
    if unknown is not None:
        near = get_close_matches(unknown[1], _fields(), n=1)
        if near == [unknown[1]]:
            text += f"; {near[0]} is a setting of {_owners(near[0])}"
        elif near:
            text += f"; did you mean {near[0]!r}?"
    return f"{field}: {text[0].lower()}{text[1:]}" if field else text[0].lower() + text[1:]
