"""Samples to documents: stateless, a pure function of the sample's bytes and its key."""

from zephon.stages.stage import (
    Stage,
    StageConfig,
    fitted_config,
    stage_config,
    stage_fields,
    stage_metadata,
    stage_plan,
    stage_rule,
)

__all__ = [
    "Stage",
    "StageConfig",
    "fitted_config",
    "stage_config",
    "stage_fields",
    "stage_metadata",
    "stage_plan",
    "stage_rule",
]
