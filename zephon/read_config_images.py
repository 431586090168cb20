"""Checks of a configuration whose documents have images, or whose rows have budgets, that need no data."""

from __future__ import annotations

from zephon.config import Config
from zephon.errors import ConfigError
from zephon.images.rules import ResizeRule, check_rule, least_tokens
from zephon.stages import StageConfig, fitted_config, stage_metadata, stage_rule

# Packers that fill a row's rest by cutting a document.
CUTTING = ("concat", "best_fit_split")


def source_stage(config: Config, name: str) -> StageConfig:
    """Return the settings of a source's stage, fitted to the configuration's rows."""
    return fitted_config(
        config.sources[name].stage,
        capacity=config.sequence_length + 1,
        long=config.pack.long,
        place=f"sources.{name}.stage",
    )


def resize_rule(config: Config) -> ResizeRule | None:
    """Return the rule that all images of a stream are resized by; None: it has none."""
    rules = (stage_rule(source_stage(config, name)) for name in config.sources)
    return next((rule for rule in rules if rule is not None), None)


def inexact_pixels(config: Config) -> list[str]:
    """Return the sources whose pixels may differ in a last bit from one machine to another: a GPU may decode them."""
    stages = {name: source_stage(config, name) for name in config.sources}
    images = {name: getattr(stage, "images", None) for name, stage in stages.items()}
    return [name for name, settings in images.items() if getattr(settings, "decoder", "cpu") != "cpu"]


def check_attachments(config: Config) -> None:
    """Raise ConfigError where images would be cut, or go to the model in two forms."""
    first: tuple[str, ResizeRule] | None = None
    for name in config.sources:
        stage = source_stage(config, name)
        rule = stage_rule(stage)
        if rule is None:
            continue
        check_rule(rule, place=f"sources.{name}.stage.images.resize")
        if config.pack.kind in CUTTING:
            raise ConfigError(
                f"pack.kind={config.pack.kind} cuts documents, and those of sources.{name} have images; "
                "set pack.kind: best_fit"
            )
        longest = getattr(stage, "max_tokens", None)
        if longest is not None and longest > config.sequence_length + 1:
            raise ConfigError(
                f"sources.{name}.stage.max_tokens={longest} is more than a row of sequence_length + 1 = "
                f"{config.sequence_length + 1} tokens; set it lower, or leave it out"
            )
        least = least_tokens(rule)
        if longest is not None and least > longest:
            raise ConfigError(
                f"sources.{name}.stage.images.resize gives every image {least} tokens at least, and a document has at "
                f"most {longest}; set a smaller size or min_pixels, or a larger sequence_length"
            )
        if first is not None and first[1] != rule:
            raise ConfigError(
                f"sources.{name}.stage.images.resize differs from that of sources.{first[0]}; a batch has one "
                "pixel_values, so set the same for both"
            )
        first = (name, rule)


def check_budgets(config: Config) -> None:
    """Raise ConfigError where a budget bounds what no document declares, or a packer that knows no budgets."""
    if not config.pack.budgets:
        return
    if config.pack.kind != "best_fit":
        raise ConfigError(f"pack.kind={config.pack.kind} keeps no budgets; set pack.kind: best_fit")
    declared = {field for name in config.sources for field in stage_metadata(source_stage(config, name))}
    for field in config.pack.budgets:
        if field not in declared:
            known = f"declared: {', '.join(sorted(declared))}" if declared else "none is declared"
            raise ConfigError(
                f"pack.budgets.{field} bounds metadata that no source's stage declares ({known}); correct the name"
            )
