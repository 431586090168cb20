"""Samples to documents: stateless, a pure function of the sample's bytes and its key."""

from zephon.stages.stage import Stage, StageConfig, stage_config, stage_fields, stage_metadata, stage_plan

__all__ = ["Stage", "StageConfig", "stage_config", "stage_fields", "stage_metadata", "stage_plan"]
