"""Write docs/configuration.md and docs/api.md from docstrings and signatures: `python docs/generate.py`."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

import zephon
from zephon import Batch, Document, config
from zephon.images.rules import FixedRule, NativeRule
from zephon.registry import BACKENDS, FORMATS, OPERATORS, PACKERS, STAGES, resolve
from zephon.stages.fim import Fim
from zephon.stages.pictures import Augment, Images

PAGE = Path(__file__).with_name("configuration.md")
API_PAGE = Path(__file__).with_name("api.md")
# A field's line in a docstring: its name (or names), at least two spaces, what it means.
FIELD = re.compile(r"(\w+(?:, \w+)*) {2,}(\S.*)")
# What every operator is built with, beside its options.
GIVEN = ("seed", "lane", "position")
# Structs whose section is called otherwise.
ANCHORS = {"ChatStage": "stage-chat"}

HEAD = """\
# Configuration

Written by `python docs/generate.py` from the docstrings in the code; change those, not this page.

A configuration is a YAML file, a mapping or a `zephon.Config`; `zephon.load_config(config, overrides)` reads and
checks it before any data is read. An unknown field is an error, and so is one that is set twice. An override is
`a.b=value`, its value YAML; on the command line it is `-o a.b=value`. Paths are relative to the folder that is current
where the configuration is read, and are made absolute there. [configs/](../configs) has files to start from.

**What is the plan and what isn't.** Of the top level,
{plan}
[guarantees.md](guarantees.md#what-may-change-on-a-resume) says what
that means for a resume.
"""


API_HEAD = """\
# API

Written by `python docs/generate.py` from the docstrings in the code; change those, not this page.

All of `zephon.__all__`. Everything else may change without notice, except the protocols in
[extending.md](extending.md). `ConfigLike` is a path of a YAML file, a mapping or a `Config`.
"""


class Described(NamedTuple):
    """A docstring taken apart: its prose, and what it says of each field."""

    prose: str
    fields: dict[str, str]


def describe(doc: str | None) -> Described:
    """Return a docstring's prose, paragraphs apart, and its lines `name  meaning` with their continuations."""
    prose: list[str] = []
    fields: dict[str, str] = {}
    last = ""
    for line in inspect.cleandoc(doc or "").splitlines():
        match = FIELD.fullmatch(line)
        if match:
            last = match[1]
            fields.update(dict.fromkeys(last.split(", "), match[2]))
        elif last and line.startswith("  "):
            fields.update({name: f"{fields[name]} {line.strip()}" for name in last.split(", ")})
        else:
            last = ""
            prose.append(line)
    return Described(re.sub(r"\n{3,}", "\n\n", "\n".join(prose)).strip(), fields)


def type_text(kind: Any) -> str:
    """Return what a reader of YAML calls a type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        bounds = [argument for argument in arguments if isinstance(argument, msgspec.Meta)]
        limits = [f"≥ {bound.ge}" for bound in bounds if bound.ge is not None]
        limits += [f"≤ {bound.le}" for bound in bounds if bound.le is not None]
        return " ".join([type_text(arguments[0]), ", ".join(limits)]).strip()
    if origin is Literal:
        return " \\| ".join(f"`{value}`" for value in arguments)
    if origin in (Union, types.UnionType):
        return " \\| ".join(dict.fromkeys(type_text(argument) for argument in arguments))
    if origin in (list, tuple):
        return f"list of {plural(type_text(arguments[0]))}"
    if origin in (dict, Mapping):
        return f"mapping to {plural(type_text(arguments[1]))}" if arguments[1] is not Any else "mapping"
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return f"[{kind.__name__}](#{ANCHORS.get(kind.__name__, kind.__name__.lower())})"
    names = {int: "integer", float: "number", str: "string", bool: "true \\| false", types.NoneType: "null"}
    return names.get(kind, "value")


def plural(text: str) -> str:
    """Return the name of several values of a type."""
    return " \\| ".join(
        part if part.startswith("[") or part.endswith("s") else f"{part}s" for part in text.split(" \\| ")
    )


def default_text(field: msgspec.structs.FieldInfo) -> str:
    """Return a field's default as YAML would write it."""
    if field.required:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if isinstance(value, msgspec.Struct):
        return "its defaults"
    if isinstance(value, tuple):
        value = list(value)
    return f"`{cell(value if isinstance(value, str) else msgspec.json.encode(value).decode())}`"


def fields_table(struct: type[msgspec.Struct]) -> list[str]:
    """Return a struct's fields as a table. Raises ValueError for a field that its docstring leaves out."""
    meanings = describe(struct.__doc__).fields
    hints = get_type_hints(struct, include_extras=True)
    lines = ["| field | type | default | |", "|---|---|---|---|"]
    for field in msgspec.structs.fields(struct):
        name = field.encode_name
        meaning = meanings.pop(name, meanings.pop(field.name.rstrip("_"), None))
        if meaning is None:
            raise ValueError(f"{struct.__module__}.{struct.__qualname__}: its docstring says nothing of {name!r}")
        kind = type_text(hints[field.name])
        # A choice's values are in the column of types.
        meaning = cell(meaning).removeprefix(kind.replace("`", "") + ": ")
        lines.append(f"| `{name}` | {kind} | {default_text(field)} | {meaning} |")
    if meanings:
        raise ValueError(
            f"{struct.__module__}.{struct.__qualname__}: its docstring names {sorted(meanings)}, no fields"
        )
    return lines


def cell(text: str) -> str:
    """Return a text that may stand in a table."""
    return text.replace("|", "\\|")


def section(title: str, struct: type[msgspec.Struct], *, level: int = 2) -> list[str]:
    """Return a heading, the docstring's prose and the table of fields."""
    return [f"{'#' * level} {title}", "", describe(struct.__doc__).prose, "", *fields_table(struct), ""]


def options_table(kind: Any) -> list[str]:
    """Return an operator's own keyword arguments."""
    parameters = [p for p in inspect.signature(kind).parameters.values() if p.name not in GIVEN]
    lines = ["| option | type | default |", "|---|---|---|"]
    hints = get_type_hints(kind.__init__)
    return lines + [f"| `{p.name}` | {type_text(hints[p.name])} | `{p.default}` |" for p in parameters]


def kinds(table: Iterable[str]) -> str:
    """Return the names of a registry."""
    return ", ".join(f"`{name}`" for name in table)


def render() -> str:
    """Return the page."""
    main = describe(config.Config.__doc__)
    # "All that a loader needs." is the first paragraph; the second says what the plan is.
    plan = " ".join(main.prose.split("\n\n")[1].split())
    lines = [HEAD.format(plan=plan)]
    lines += ["## Config", "", "The top level.", "", *fields_table(config.Config), ""]
    for name in ("Source", "Mix", "Entry", "Tokenizer", "Pack", "OperatorConfig", "Backend", "Spill"):
        lines += section(name, getattr(config, name))
    lines += ["## Stages", "", f"`stage` of a source: its `kind` ({kinds(STAGES)}, or your own as module:Struct)."]
    lines += ["The default kind is `text`. The other fields are the kind's own.", ""]
    for kind in STAGES:
        lines += section(f"Stage {kind}", resolve(STAGES, kind, place="stage"), level=3)
    for struct in (Fim, Images, NativeRule, FixedRule, Augment):
        lines += section(struct.__name__, struct, level=3)
    lines += section("What a function may return: Document", Document, level=3)
    lines += ["## Operators", ""]
    for kind in OPERATORS:
        operator = resolve(OPERATORS, kind, place="operator")
        lines += [f"### Operator {kind}", "", describe(operator.__doc__).prose, "", *options_table(operator), ""]
    lines += ["## Kinds", ""]
    for field, table in (("pack.kind", PACKERS), ("format", FORMATS), ("backend.kind", BACKENDS)):
        lines += [f"`{field}`: {kinds(table)}.", ""]
    for kind in PACKERS:
        lines.append(f"- `{kind}`: {describe(resolve(PACKERS, kind, place='pack').__doc__).prose.splitlines()[0]}")
    lines += ["", "## What a batch holds", "", *batch_lines(), ""]
    return "\n".join(lines)


def batch_lines() -> list[str]:
    """Return the entries of a batch as a table."""
    described = describe(Batch.__doc__)
    lines = [described.prose, "", "| entry | |", "|---|---|"]
    return lines + [f"| `{name}` | {cell(meaning)} |" for name, meaning in described.fields.items()]


def render_api() -> str:
    """Return the page of what `import zephon` gives: signatures, and one sentence each; all of Loader's docstring."""
    lines = [API_HEAD]
    for name in sorted(zephon.__all__):
        thing = getattr(zephon, name)
        lines += [f"## {name}", "", *signature_lines(name, thing)]
        if name == "Loader":
            lines += [describe(thing.__doc__).prose, "", *member_lines(thing)]
        else:
            lines += [sentence(thing.__doc__), ""]
        if name in ("Config", "Document", "Batch"):
            anchor = {"Config": "config", "Document": "what-a-function-may-return-document"}
            lines += [f"Its fields: [configuration.md](configuration.md#{anchor.get(name, 'what-a-batch-holds')}).", ""]
    return "\n".join(lines)


def signature_lines(name: str, thing: Any) -> list[str]:
    """Return a signature as a block; none for errors, and for Config, whose fields have a page."""
    if name == "Config" or (isinstance(thing, type) and issubclass(thing, Exception)):
        return []
    call = inspect.signature(thing.__init__ if name == "Loader" else thing)
    parameters = [p for p in call.parameters.values() if p.name != "self"]
    returns = inspect.Signature.empty if isinstance(thing, type) else call.return_annotation
    return ["```", f"{name}{plain(call.replace(parameters=parameters, return_annotation=returns))}", "```", ""]


def member_lines(kind: type) -> list[str]:
    """Return a class's public members: properties by name, methods with their signatures, a sentence each."""
    lines = ["| member | |", "|---|---|"]
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            lines.append(f"| `{name}` | {cell(sentence(member.__doc__))} |")
        else:
            call = inspect.signature(member)
            parameters = [p for p in call.parameters.values() if p.name != "self"]
            text = plain(call.replace(parameters=parameters))
            lines.append(f"| `{cell(name + text)}` | {cell(sentence(member.__doc__))} |")
    return [*lines, ""]


def plain(call: inspect.Signature) -> str:
    """Return a signature as one would type it: annotations without quotes, modules or types of elements."""
    text = re.sub(r"'([^']*)'", r"\1", str(call))
    return re.sub(r"\b(?:\w+\.)+(?=[A-Za-z_])", "", text).replace("<factory>", "{}")


def sentence(doc: str | None) -> str:
    """Return a docstring's first paragraph as one line."""
    return " ".join(inspect.cleandoc(doc or "").split("\n\n")[0].split())


if __name__ == "__main__":
    PAGE.write_text(render())
    API_PAGE.write_text(render_api())
