"""Chat templates: Jinja2 in a sandbox, without clock and chance, that can mark what is to be learned.

The language is that of Hugging Face's chat templates, `{% generation %} … {% endgeneration %}` included.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.meta import find_undeclared_variables
from jinja2.parser import Parser
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment

from zephon.errors import ConfigError
from zephon.stages.fields import BadSampleError

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% if message['role'] == 'assistant' %}"
    "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}"
    "{% else %}{{ message['content'] + '<|im_end|>\\n' }}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""ChatML: `<|im_start|>role newline content <|im_end|> newline`; learned is content and <|im_end|>."""

# What a template does wrong with one sample's messages shows as one of these.
SAMPLE_ERRORS = (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError)


class ChatTemplate:
    """A compiled template; may be used by several threads at once. Raises ConfigError, naming `place`.

    marks  whether it has generation blocks
    names  the variables that it uses
    """

    def __init__(self, text: str, *, place: str) -> None:
        environment = _environment()
        try:
            tree = environment.parse(text)
            self.marks = _check_marks(tree, place=place)
            self.names = frozenset(find_undeclared_variables(tree))
            self._template = environment.from_string(text)
        except TemplateSyntaxError as error:
            raise ConfigError(f"{place}: line {error.lineno} of the template: {error.message}; correct it") from error

    def render(self, variables: Mapping[str, Any]) -> list[tuple[str, bool]]:
        """Return the text in parts, in order, each with whether it stands in a generation block.

        Neighbours differ in the latter; no part is empty. Raises BadSampleError.
        """
        parts: list[tuple[str, bool]] = []
        try:
            for chunk in self._template.generate(variables):
                marked = isinstance(chunk, _Generated)
                if parts and parts[-1][1] == marked:
                    parts[-1] = (parts[-1][0] + chunk, marked)
                elif chunk:
                    parts.append((str(chunk), marked))
        except SAMPLE_ERRORS as error:
            reason = " ".join(str(error).split())[:200]
            raise BadSampleError(f"the chat template fails: {type(error).__name__}: {reason}") from None
        return parts


def is_template_text(template: str) -> bool:
    """Return whether a configured template is the text itself, not a file's path."""
    return "{{" in template or "{%" in template or "\n" in template


def read_template(template: str | None, *, place: str) -> str:
    """Return a template's text: null is ChatML; what holds `{{`, `{%` or a line end is the text itself.

    Else it is a file's path: the template, or a .json file with a `chat_template`, as
    tokenizer_config.json. Raises ConfigError.
    """
    if template is None:
        return CHATML
    if is_template_text(template):
        return template
    path = Path(template)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigError(
            f"{place}={template!r} can't be read ({reason}); give a file's path, or the text itself"
        ) from error
    if path.suffix != ".json":
        return text
    try:
        return msgspec.json.decode(text, type=_TokenizerConfig).chat_template
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{place}={template!r} holds no chat_template ({error}); give a file that does") from error


class _TokenizerConfig(msgspec.Struct):
    chat_template: str


class _Generated(str):
    """Text that came from a generation block."""

    __slots__ = ()


class _Generation(Extension):
    tags = {"generation"}  # noqa: RUF012 declared so by Jinja2

    def parse(self, parser: Parser) -> nodes.CallBlock:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_mark"), [], [], body, lineno=line)

    def _mark(self, caller: Macro) -> str:
        return _Generated(caller())


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    # Chance has no place in what fixes the documents; a clock (strftime_now) isn't offered either.
    del environment.filters["random"]
    del environment.globals["lipsum"]
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja2's own escapes HTML, which has no business in a prompt.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise TemplateError(message)


def _check_marks(tree: nodes.Template, *, place: str) -> bool:
    # A mark survives only where the template writes it straight out, not where it first becomes other text.
    for node in tree.find_all((nodes.Macro, nodes.FilterBlock, nodes.AssignBlock, nodes.CallBlock, nodes.For)):
        indirect = node.recursive if isinstance(node, nodes.For) else not _is_mark(node)
        if indirect and any(map(_is_mark, node.find_all(nodes.CallBlock))):
            raise ConfigError(
                f"{place}: line {node.lineno} has a generation block in a macro, call, filter or set block or a "
                "recursive loop, where it can't be followed; move it out"
            )
    return any(map(_is_mark, tree.find_all(nodes.CallBlock)))


def _is_mark(node: nodes.Node) -> bool:
    if not isinstance(node, nodes.CallBlock):
        return False
    target = node.call.node
    return isinstance(target, nodes.ExtensionAttribute) and target.name == "_mark"
