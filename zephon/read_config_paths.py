"""A configuration's paths, made absolute where it is read: what changes the folder later, or works elsewhere, finds
the same files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from zephon.config import Config, Source
from zephon.errors import ConfigError, StoreError
from zephon.formats.expand import braces, exists, expand
from zephon.stages.template import is_template_text

# What braces and globs take for their own.
SPECIAL = frozenset("*?[]{}")


def with_absolute_paths(config: Config) -> Config:
    """Return the configuration with its paths below the current folder made absolute; the same one if none is.

    Patterns stay patterns. Of stages, chat templates' files are paths. Raises ConfigError where a path is relative
    and the current folder is gone, and for what `check_path` refuses.
    """
    changes: dict[str, Any] = {}
    sources = {name: _source(source, f"sources.{name}") for name, source in config.sources.items()}
    if any(sources[name] is not source for name, source in config.sources.items()):
        changes["sources"] = sources
    if config.tokenizer is not None and _is_relative(config.tokenizer.path):
        path = _absolute(config.tokenizer.path, "tokenizer.path")
        changes["tokenizer"] = replace(config.tokenizer, path=path)
    if config.index_dir is not None and _is_relative(config.index_dir):
        changes["index_dir"] = _absolute(config.index_dir, "index_dir")
    if config.spill.dir is not None and _is_relative(config.spill.dir):
        changes["spill"] = replace(config.spill, dir=_absolute(config.spill.dir, "spill.dir"))
    made = replace(config, **changes) if changes else config
    check_path(made, made.tokenizer.path if made.tokenizer else "", place="tokenizer.path")
    check_path(made, made.index_dir or "", place="index_dir")
    check_path(made, made.spill.dir or "", place="spill.dir")
    return made


def check_path(config: Config, path: str, *, place: str) -> None:
    """Raise ConfigError for what is no path, and for one that isn't UTF-8 but has to be sent to another process."""
    if "\0" in path:
        raise ConfigError(f"{place}: {path!a} holds a zero byte, as no path does; correct it")
    if config.backend.kind != "processes" and config.engine != "process":
        return
    try:
        path.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"{place}: {path!a} isn't UTF-8, and can't be sent to another process; rename it, or set "
            "backend.kind=threads and engine=thread"
        ) from None


def _source(source: Source, place: str) -> Source:
    changes: dict[str, Any] = {}
    given = [source.path] if isinstance(source.path, str) else source.path
    made = [path for pattern in given for path in _pattern(pattern, f"{place}.path")]
    if made != given:
        changes["path"] = made[0] if isinstance(source.path, str) and len(made) == 1 else made
    stage = _stage(source.stage, f"{place}.stage")
    if stage is not source.stage:
        changes["stage"] = stage
    return replace(source, **changes) if changes else source


def _stage(stage: dict[str, Any], place: str) -> dict[str, Any]:
    """Return a stage's settings with a chat template's file, its own or that of `chat` in it, made absolute."""
    template, chat = stage.get("template"), stage.get("chat")
    if isinstance(template, str) and not is_template_text(template) and _is_relative(template):
        return {**stage, "template": _absolute(template, f"{place}.template")}
    if isinstance(chat, dict):
        inner = _stage(chat, f"{place}.chat")
        return stage if inner is chat else {**stage, "chat": inner}
    return stage


def _pattern(pattern: str, place: str) -> list[str]:
    """Return what a pattern stands for from any folder: itself below this one, as one or, if need be, as several."""
    if not _is_relative(pattern):
        return [pattern]
    if not SPECIAL.isdisjoint(pattern) and not exists(pattern):
        if pattern.startswith("{") and ("{/" in pattern or ",/" in pattern):
            # Of its alternatives some are absolute already.
            parts = braces(pattern, place=place)
            if parts != [pattern]:
                return [path for part in parts for path in _pattern(part, place)]
        folder = _folder(place)
        if not SPECIAL.isdisjoint(folder):
            # The folder's name would be taken for a part of the pattern.
            try:
                return [str(Path(folder) / shard) for shard in expand(pattern, place=place)]
            except StoreError:
                return [pattern]
    return [_absolute(pattern, place)]


def _is_relative(path: str) -> bool:
    return bool(path) and "://" not in path and not path.startswith("/")


def _absolute(path: str, place: str) -> str:
    return f"{_folder(place).rstrip('/')}/{path}"


def _folder(place: str) -> str:
    try:
        return str(Path.cwd())
    except OSError as error:
        raise ConfigError(
            f"{place} is relative, and the current folder is gone ({error.strerror}); give an absolute path"
        ) from error
