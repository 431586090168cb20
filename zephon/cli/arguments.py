"""Arguments that several commands share, and how lists of values are written: 1,2,4."""

from __future__ import annotations

from typing import Annotated

import typer

from zephon.errors import ConfigError

ConfigPath = Annotated[str, typer.Argument(metavar="CONFIG", help="YAML configuration.")]
Overrides = Annotated[
    list[str] | None, typer.Option("-o", "--override", metavar="KEY=VALUE", help="Change a setting: backend.workers=4.")
]
Steps = Annotated[int, typer.Option("--steps", min=1, help="Global batches to read.")]


def names(text: str, *, option: str) -> list[str]:
    """Return the values of `a,b,c`, without repetitions. Raises ConfigError for an empty one."""
    values = [value.strip() for value in text.split(",")]
    if not all(values):
        raise ConfigError(f"{option}={text!r} has an empty value; write a,b,c")
    return list(dict.fromkeys(values))


def numbers(text: str, *, option: str, least: int) -> list[int]:
    """Return the numbers of `1,2,4`, without repetitions. Raises ConfigError below `least`."""
    values = names(text, option=option)
    for value in values:
        if not value.isdecimal() or int(value) < least:
            raise ConfigError(f"{option}={text!r}: {value!r} is no whole number from {least} on; write 1,2,4")
    return [int(value) for value in values]
