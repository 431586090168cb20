"""What a stage is, and how a configuration names one.

A stage kind is one file with a frozen struct of settings, registered in zephon/registry.py; the struct
builds the stage. A user's own is named as `kind: module:Struct`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, cast

import msgspec

from zephon.config import Tokenizer
from zephon.errors import ConfigError
from zephon.formats.sample import Column, Sample, column_names
from zephon.images.rules import ResizeRule
from zephon.random import SampleRandom
from zephon.registry import STAGES, resolve
from zephon.stages.documents import Documents
from zephon.tokenizer import LoadedTokenizer

SampleRandomOf = Callable[[int], SampleRandom]


class Stage(Protocol):
    """Stateless work: samples to documents. May be called by several threads at once."""

    def documents(self, samples: Sequence[Sample], random: SampleRandomOf) -> Documents:
        """Return the samples' documents, in order; `random(i)` is the generator of samples[i].

        A sample's documents depend on nothing but the sample and its generator. A sample that isn't what
        the stage needs is reported in `bad`; the others go on.
        """
        ...


class StageConfig(Protocol):
    """A stage's settings: a frozen msgspec struct with these methods."""

    def fields(self) -> tuple[Column, ...] | None:
        """Return the fields that the stage reads of a sample; None: all. A tuple of names: those that are there."""
        ...

    def metadata(self) -> tuple[str, ...]:
        """Return the names of the integers that each document carries, in the order of Page.meta."""
        ...

    def plan(self) -> dict[str, Any]:
        """Return plain values that fix the documents, defaults filled in; never a path."""
        ...

    def needs(self) -> tuple[str, ...]:
        """Return the tokenizer's settings that must be set: of path, eos and bos."""
        ...

    def build(self, tokenizer: LoadedTokenizer | None, *, place: str) -> Stage:
        """Return the stage; raises ConfigError, naming `place`, where the settings can't work."""
        ...


def stage_config(raw: dict[str, Any], *, place: str) -> StageConfig:
    """Return the settings of a source's `stage`; raises ConfigError, naming the field in `place`."""
    kind = raw.get("kind", "text")
    if not isinstance(kind, str):
        raise ConfigError(f"{place}.kind={kind!r} is no name; known: {', '.join(STAGES)}, or your own as module:Struct")
    type_ = resolve(STAGES, kind, place=f"{place}.kind")
    if not (isinstance(type_, type) and issubclass(type_, msgspec.Struct) and hasattr(type_, "build")):
        raise ConfigError(
            f"{place}.kind={kind!r} is no struct of a stage's settings; see zephon.stages.stage.StageConfig"
        )
    settings = {name: value for name, value in raw.items() if name != "kind"}
    try:
        config = msgspec.convert(settings, type_)
    except msgspec.ValidationError as error:
        known = ", ".join(type_.__struct_encode_fields__)
        raise ConfigError(f"{place} ({kind}): {error}; its fields: {known}") from error
    return cast(StageConfig, config)


def fitted_config(raw: dict[str, Any], *, capacity: int, long: str, place: str) -> StageConfig:
    """Return a source's settings, where they depend on the rows fitted to rows of `capacity` tokens and `pack.long`.

    A stage whose documents have attachments cuts long ones itself, since a packer would cut an image; its config
    has a method `fitted(capacity=, long=)`, and `resize_rule()` returns what its images become.
    """
    config = stage_config(raw, place=place)
    if not hasattr(config, "fitted"):
        return config
    return cast(StageConfig, config.fitted(capacity=capacity, long=long))


def stage_rule(config: StageConfig) -> ResizeRule | None:
    """Return the rule by which a stage's images are resized; None: its documents have none."""
    return cast(ResizeRule, config.resize_rule()) if hasattr(config, "resize_rule") else None


def stage_fields(config: StageConfig) -> tuple[Column, ...] | None:
    """Return the fields that a stage reads of a sample, for the reader to read no others; None: all."""
    return config.fields()


def field_settings(config: StageConfig) -> dict[str, str]:
    """Return which setting of a stage names each field that it reads, such as {"messages": "chat.field"}."""
    names = {name for column in config.fields() or () for name in column_names(column)}
    return {name: setting for setting, name in _texts(config) if name in names}


def _texts(settings: Any) -> Iterator[tuple[str, str]]:
    """Yield all texts in settings, and in lists and structs of them, with where they stand; the first ones last."""
    for attribute, name in reversed(
        tuple(zip(settings.__struct_fields__, settings.__struct_encode_fields__, strict=True))
    ):
        value = getattr(settings, attribute)
        if isinstance(value, msgspec.Struct):
            yield from ((f"{name}.{inner}", text) for inner, text in _texts(value))
        values = value if isinstance(value, tuple | list) else (value,)
        yield from ((name, text) for text in values if isinstance(text, str))


def stage_metadata(config: StageConfig) -> tuple[str, ...]:
    """Return the names of a stage's metadata, in the order of Page.meta."""
    return config.metadata()


def stage_plan(config: StageConfig, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Return the plain values that fix a stage's documents, beside the tokenizer's own plan.

    Raises ConfigError where the stage needs a tokenizer, or a token of it, that isn't configured.
    """
    plan = config.plan()
    kind = plan.setdefault("kind", f"{type(config).__module__}:{type(config).__qualname__}")
    for name in config.needs():
        if getattr(tokenizer, name, None) is None:
            instead = f", or {name}: false in the stage" if name != "path" else ""
            raise ConfigError(f"a stage of kind {kind} needs tokenizer.{name}, which isn't set; set it{instead}")
    # As a state gives them back: lists for tuples, strings for dates.
    result: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(plan))
    return result
