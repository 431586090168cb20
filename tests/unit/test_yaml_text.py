"""Strict YAML: what is set twice is told with its line; everything else is as PyYAML reads it."""

from __future__ import annotations

import pytest
import yaml

from zephon import ConfigError
from zephon.yaml_text import parse_yaml


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "[1, 2, {a: b}]",
        "a: &x {b: 1}\nc: *x\nd: [*x, *x]",
        # What is brought in by a merge may be set again, also where it was brought in before.
        "a: &a {x: 1}\nb: {c: &b {<<: *a, x: 2}}\nd: {<<: *b, x: 3}\ne: {<<: [*a, *b]}",
        # Other types, other keys.
        "{1: a, '1': b}",
    ],
)
def test_values_are_those_of_pyyaml(text: str) -> None:
    assert parse_yaml(text, place="it") == yaml.safe_load(text)


def test_one_that_holds_itself_ends() -> None:
    made = parse_yaml("&a [1, *a]", place="it")
    assert made[1] is made


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nb: 2\na: 3", "it, line 3: a is set twice, first in line 1; keep one"),
        ("a: {b: [{c: 1,\n c: 2}]}", "it, line 2: c is set twice, first in line 1; keep one"),
        ("{a: 1, a: 1}", "it, line 1: a is set twice"),
        ("a: [", "it is no YAML: "),
        ("a: 2001-99-99", "it is no YAML: month must be in 1..12"),
        ("a: \0", "it is no YAML: "),
        ("{[1]: 2}", "it is no YAML: "),
        ("!!python/object:os.system {}", "it is no YAML: could not determine a constructor"),
        ("[" * 5000, "it is nested too deeply"),
    ],
)
def test_what_is_wrong_is_one_line(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_yaml(text, place="it")
    assert str(raised.value).startswith(says)
    assert "\n" not in str(raised.value)
