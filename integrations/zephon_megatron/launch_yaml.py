"""A YAML file of a Megatron run: its `data` section, and Megatron's own arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from zephon import Config, ConfigError, load_config
from zephon.yaml_text import parse_yaml

BACKEND = "zephon"
# Settings of the data section that aren't the stream's own; all others are fields of Config.
OWN = ("backend", "config", "path", "stage", "valid", "test", "begins_at", "save", "load")
OF_EVALUATION = ("config", "path", "stage")


class StreamSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A stream's configuration as a data section gives it: a file, if any, and what is set over it."""

    config: str | None = None
    overrides: tuple[str, ...] = ()

    def load(self, *, sequence_length: int, global_batch_size: int) -> Config:
        """Return the checked configuration. A stream without a file has these two, where it doesn't set them."""
        if self.config is not None:
            return load_config(self.config, self.overrides)
        filled = (f"sequence_length={sequence_length}", f"global_batch_size={global_batch_size}")
        return load_config({}, (*filled, *self.overrides))


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """What a YAML file and its overrides say.

    backend    data.backend; None where there is no data section
    arguments  Megatron's own, as its command line takes them
    train, valid, test   streams; train is None with another backend
    begins_at, save, load   as --zephon-begins-at, --dataloader-save and --dataloader-load
    """

    backend: str | None
    arguments: tuple[str, ...] = ()
    train: StreamSettings | None = None
    valid: StreamSettings | None = None
    test: StreamSettings | None = None
    begins_at: int = 0
    save: str | None = None
    load: str | None = None


def read_launch(path: str | Path, overrides: Sequence[str] = ()) -> Launch:
    """Return what a Megatron YAML file says, with overrides `data.a=value` or `argument=value`; values are YAML.

    With `data.backend: zephon` the section describes streams. With another backend its other settings are Megatron's
    arguments, like all the rest of the file: `seq_length: 8`, at the top or in a section of any name, is
    `--seq-length 8`; true is the bare option; false and null leave it out; a list is several values.
    Raises ConfigError, naming file and setting, for what can't be understood, and for a data section without backend.
    """
    raw = _read(Path(path))
    for override in overrides:
        set_override(raw, override)
    if "data" not in raw:
        return Launch(backend=None, arguments=_arguments(raw, path))
    data = raw.pop("data")
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: data={data!r} is no section; write data: {{backend: zephon, config: …}}")
    backend = data.pop("backend", None)
    if backend is None:
        # Nobody says whose data is meant, and the script's own would be trained on in silence.
        raise ConfigError(
            f"{path}: data.backend isn't set; write data.backend: {BACKEND}, or megatron where data's settings are "
            "Megatron's arguments"
        )
    if backend != BACKEND and BACKEND in str(backend).lower():
        # Nearly ours: the script's own data would be trained on in silence.
        raise ConfigError(f"{path}: data.backend={backend!r} is unknown; write data.backend: {BACKEND}")
    if not isinstance(backend, str):
        raise ConfigError(f"{path}: data.backend={backend!r} is no name; write data.backend: {BACKEND}, or megatron")
    if backend != BACKEND:
        return Launch(backend=backend, arguments=_arguments({**raw, "data": data}, path))
    return msgspec.structs.replace(read_section(data, place=f"{path}: data"), arguments=_arguments(raw, path))


def read_section(section: Mapping[str, Any], *, place: str) -> Launch:
    """Return the streams that a data section describes, without Megatron's arguments; `place` is for errors."""
    own = {name: section[name] for name in OWN if name in section}
    begins_at = own.get("begins_at", 0)
    if not isinstance(begins_at, int) or isinstance(begins_at, bool) or begins_at < 0:
        raise ConfigError(f"{place}.begins_at={begins_at!r} must be a number of samples, 0 or more; correct it")
    for name in ("save", "load"):
        if not isinstance(own.get(name), str | None):
            raise ConfigError(f"{place}.{name}={own[name]!r} must be the path of a folder; correct it")
    return Launch(
        backend=BACKEND,
        train=_stream(section, place=place),
        valid=_evaluation(own.get("valid"), place=f"{place}.valid"),
        test=_evaluation(own.get("test"), place=f"{place}.test"),
        begins_at=begins_at,
        save=own.get("save"),
        load=own.get("load"),
    )


def set_override(raw: dict[str, Any], override: str) -> None:
    """Set `a.b=value` in nested mappings; the value is YAML. Raises ConfigError where it can't be set."""
    name, _, text = override.partition("=")
    value = parse_yaml(text, place=f"override {override!r}: its value")
    *parents, last = name.strip().split(".")
    node = raw
    for parent in parents:
        inner = node.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"override {override!r}: {parent} is a value, not a section")
        node = inner
    node[last] = value


def _evaluation(section: Any, *, place: str) -> StreamSettings | None:
    if section is None:
        return None
    if not isinstance(section, dict):
        raise ConfigError(f"{place}={section!r} is no section; write {place.rpartition('.')[2]}: {{config: …}}")
    unknown = [name for name in OWN if name in section and name not in OF_EVALUATION]
    if unknown:
        raise ConfigError(f"{place}.{unknown[0]} is a setting of data itself; move it up")
    return _stream(section, place=place)


def _stream(section: Mapping[str, Any], *, place: str) -> StreamSettings:
    settings = {name: value for name, value in section.items() if name not in OWN}
    config, path = section.get("config"), section.get("path")
    if config is not None and not isinstance(config, str):
        raise ConfigError(f"{place}.config={config!r} must be the path of a configuration; put its fields in {place}")
    short = {name: section[name] for name in ("path", "stage") if section.get(name) is not None}
    if short and (path is None or config is not None or "sources" in settings):
        raise ConfigError(
            f"{place}.path, with or without stage, is short for one source named data; with config or sources set "
            "that source's own: sources.NAME.path"
        )
    if short:
        settings["sources"] = {"data": short}
    if config is None and not settings:
        raise ConfigError(f"{place} names no data; set config to a configuration's path, or path to the shards")
    return StreamSettings(config=config, overrides=tuple(_leaves(settings)))


def _leaves(settings: Mapping[str, Any], above: str = "") -> Iterable[str]:
    """Yield `a.b=value` for each setting; lists, and mappings whose keys hold dots, are values."""
    for name, value in settings.items():
        if isinstance(value, dict) and value and not any("." in str(key) for key in value):
            yield from _leaves(value, f"{above}{name}.")
        else:
            # As a list of one: a bare scalar would be followed by a document's end.
            text = yaml.safe_dump([value], default_flow_style=True, width=float("inf")).strip()[1:-1]
            yield f"{above}{name}={text}"


def _arguments(raw: Mapping[str, Any], path: str | Path) -> tuple[str, ...]:
    """Return Megatron's arguments; a section is one level of grouping whose name says nothing."""
    flat: dict[str, Any] = {}
    for name, value in raw.items():
        for key, inner in value.items() if isinstance(value, dict) else ((name, value),):
            option = "--" + str(key).removeprefix("--").replace("_", "-")
            if isinstance(inner, dict):
                raise ConfigError(
                    f"{path}: {name}.{key} is a section in a section; Megatron's arguments have one level"
                )
            if option in flat:
                raise ConfigError(f"{path}: {option} is set twice; keep one")
            flat[option] = inner
    made: list[str] = []
    for option, value in flat.items():
        if value is None or value is False:
            continue
        made.append(option)
        if value is not True:
            made += [str(one) for one in (value if isinstance(value, list) else [value])]
    return tuple(made)


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"can't read {path}: {error.strerror or error}; set --config to a YAML file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} isn't UTF-8 text: {error.reason} at byte {error.start}; save it as that") from error
    raw = parse_yaml(text, place=str(path))
    if not isinstance(raw, dict):
        raise ConfigError(f"{path} must be a mapping, it is {type(raw).__name__}")
    return raw
