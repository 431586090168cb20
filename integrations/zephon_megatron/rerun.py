"""Megatron's rerun state machine, as far as it matters to a position in the stream.

A step whose result looks wrong is checkpointed in its midst, together with the micro-batches it was given, and
replayed after the restart from those: the stream's position is then ahead of the trainer's counter by that step.
"""

from __future__ import annotations


def saves_a_step_under_way() -> bool:
    """Return whether a checkpoint made now holds micro-batches that will be replayed."""
    from megatron.core.rerun_state_machine import RerunState, get_rerun_state_machine

    return get_rerun_state_machine().state is not RerunState.NOT_RUNNING_YET


def will_replay() -> bool:
    """Return whether the next step takes the micro-batches that came with the checkpoint, not the stream's."""
    from megatron.core.rerun_state_machine import get_rerun_state_machine

    return get_rerun_state_machine().data_iterator_checkpoints is not None
