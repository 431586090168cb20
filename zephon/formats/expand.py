"""From a source's `path` to the list of its shards."""

from __future__ import annotations

import glob
import os.path
import re
from itertools import pairwise, product
from pathlib import Path

from zephon.errors import ConfigError, StoreError
from zephon.formats.names import known_format

MAX_SHARDS = 1_000_000
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])")


def expand(path: str | list[str], *, place: str = "path") -> list[str]:
    """Return the shards that a path means: braces expanded, globs and folders sorted, lists in their order.

    A folder gives its files of known names that don't start with a dot. Raises StoreError, naming
    `place`, where a part matches nothing; ConfigError where a shard occurs twice.
    """
    patterns = [path] if isinstance(path, str) else path
    if not patterns:
        raise ConfigError(f"{place}: an empty list has no shard; give at least one path")
    shards = [shard for pattern in patterns for shard in _expand_one(pattern, place)]
    seen = set()
    for shard in shards:
        absolute = _absolute(shard)
        if absolute in seen:
            raise ConfigError(f"{place}: {shard} occurs twice; list it once, and raise the source's weight instead")
        seen.add(absolute)
    return shards


def braces(pattern: str, *, place: str = "path") -> list[str]:
    """Return the strings that a brace pattern stands for: {a,b}, {000..099}, {0..9..3}, {a..e}, nested.

    Braces that are none of these stand for themselves, as in a shell.
    """
    opening = pattern.find("{")
    while opening >= 0:
        closing, commas = _match_braces(pattern, opening)
        if closing is not None:
            inner = pattern[opening + 1 : closing]
            bounds = [opening, *commas, closing]
            numbers = _numbers(inner, place) if not commas else None
            if numbers is not None or commas:
                parts = numbers if numbers is not None else _alternatives(pattern, bounds, place)
                rest = braces(pattern[closing + 1 :], place=place)
                _check_count(len(parts) * len(rest), pattern, place)
                return [pattern[:opening] + part + tail for part, tail in product(parts, rest)]
        opening = pattern.find("{", opening + 1)
    return [pattern]


def _expand_one(pattern: str, place: str) -> list[str]:
    if not pattern:
        raise ConfigError(f"{place}: an empty path; give a shard, folder or pattern")
    if "://" in pattern:
        return braces(pattern, place=place)
    if exists(pattern):
        return _files(pattern, place)
    return [shard for text in braces(pattern, place=place) for shard in _files(text, place)]


def exists(text: str) -> bool:
    """Return whether there is a file or folder of this very name; a pattern may be no name at all."""
    try:
        Path(text).stat()
    except (OSError, ValueError):
        return False
    return True


def _files(text: str, place: str) -> list[str]:
    try:
        return _matches(text, place)
    except OSError as error:
        # Too long a name, a folder that may not be read.
        raise StoreError(f"{place}: {_shown(text)}: {error.strerror}; check the path and its permissions") from error
    except ValueError as error:
        raise ConfigError(f"{place}: {_shown(text)} is no path: {error}; correct it") from error


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 200 else f"{text[:200]!r}… ({len(text):,} characters)"


def _matches(text: str, place: str) -> list[str]:
    path = Path(text)
    # A pattern may be longer than any name.
    named = exists(text) or not glob.has_magic(text)
    if named and path.is_file():
        return [text]
    if named and path.is_dir():
        found = sorted(
            str(child)
            for child in path.iterdir()
            if not child.name.startswith(".") and known_format(child.name) and child.is_file()
        )
        if not found:
            raise StoreError(f"{place}: the folder {text} holds no shard (.tar, .jsonl, .parquet, …); check the path")
        return found
    # Patterns may be absolute, which Path.glob refuses.
    found = sorted(match for match in glob.glob(text, recursive=True) if Path(match).is_file())  # noqa: PTH207
    if not found:
        raise StoreError(f"{place}: {_shown(text)} matches no shard; check the path, or that its disk is mounted")
    return found


def _absolute(path: str) -> str:
    return path if "://" in path else os.path.normpath(Path.cwd() / path)


def _match_braces(pattern: str, opening: int) -> tuple[int | None, list[int]]:
    """Return where the brace at `opening` closes, and its own commas."""
    depth = 0
    commas: list[int] = []
    for at in range(opening, len(pattern)):
        character = pattern[at]
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if not depth:
                return at, commas
        elif character == "," and depth == 1:
            commas.append(at)
    return None, []


def _alternatives(pattern: str, bounds: list[int], place: str) -> list[str]:
    return [text for left, right in pairwise(bounds) for text in braces(pattern[left + 1 : right], place=place)]


def _numbers(inner: str, place: str) -> list[str] | None:
    match = _RANGE.fullmatch(inner)
    if match is None:
        letters = _LETTERS.fullmatch(inner)
        if letters is None:
            return None
        first, last = ord(letters[1]), ord(letters[2])
        return [chr(code) for code in _steps(first, last, 1)]
    first, last = int(match[1]), int(match[2])
    steps = _steps(first, last, abs(int(match[3] or 1)) or 1)
    _check_count(len(steps), "{" + inner + "}", place)
    padded = any(len(text.lstrip("-")) > 1 and text.lstrip("-").startswith("0") for text in (match[1], match[2]))
    width = max(len(match[1]), len(match[2])) if padded else 0
    return [f"{number:0{width}d}" for number in steps]


def _steps(first: int, last: int, step: int) -> range:
    return range(first, last + 1, step) if first <= last else range(first, last - 1, -step)


def _check_count(count: int, pattern: str, place: str) -> None:
    if count > MAX_SHARDS:
        raise ConfigError(f"{place}: {pattern!r} stands for {count:,} paths, more than {MAX_SHARDS:,}; use a folder")
