"""YAML as a mapping or value, strictly: a key that is set twice is an error, never the last of them in silence."""

from __future__ import annotations

from typing import Any

import yaml

from zephon.errors import ConfigError


def parse_yaml(text: str, *, place: str) -> Any:
    """Return a YAML document's plain values; `place` says what it is: "run.yaml" or "override 'a=1'".

    Raises ConfigError, naming the line, where it is no YAML or a mapping has a key twice.
    """
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _check_keys(node, place)
        return loader.construct_document(node)
    except RecursionError as error:
        raise ConfigError(f"{place} is nested too deeply; write it flatter") from error
    except (yaml.YAMLError, ValueError) as error:
        # ValueError: what looks like a date and is none.
        raise ConfigError(f"{place} is no YAML: {' '.join(str(error).split())}; correct it") from error


def _check_keys(root: yaml.Node, place: str) -> None:
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        # An alias is the very node that it names.
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            _check_mapping(node, place)
            waiting += [inner for pair in node.value for inner in pair]


def _check_mapping(node: yaml.MappingNode, place: str) -> None:
    first: dict[tuple[str, str], int] = {}
    for key, _ in node.value:
        # `<<` may stand several times: it brings in keys, and is none.
        if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
            continue
        line = key.start_mark.line + 1
        if (key.tag, key.value) in first:
            raise ConfigError(
                f"{place}, line {line}: {key.value} is set twice, first in line {first[key.tag, key.value]}; keep one"
            )
        first[key.tag, key.value] = line
