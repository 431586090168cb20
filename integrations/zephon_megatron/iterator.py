"""Iterators for Megatron's training loops: without an end, one micro-batch a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.distributed import ProcessGroup
from zephon_torch.gather import gather_state

from zephon import Batch, Loader, StateError, ZephonError
from zephon.read_config import ConfigLike, load_config
from zephon_megatron.batch import Form, config_for, gpt_batch
from zephon_megatron.topology import Place

# Keys of what `save_state` returns.
STREAM = "zephon"
COUNTER = "consumed_train_samples"


class ZephonIterator:
    """Gives a rank's micro-batches for ever, as new dicts of new CPU tensors; a finite stream begins anew.

    Every micro-batch has micro_batch_size rows of sequence_length, also at the end of a finite stream, where rows
    are masked. `counter`, if given, returns the samples that the trainer has consumed (Megatron's
    consumed_train_samples); states are then saved only where the loader has handed out just as many. `group` is the
    data-parallel group that a state is gathered over; it has to move CPU objects.

    Errors of the loader are raised by `next` with the rank's place in front, and again by each later `next`.
    """

    def __init__(
        self,
        config: ConfigLike,
        place: Place,
        *,
        form: Form,
        micro_batch_size: int,
        group: ProcessGroup | None = None,
        counter: Callable[[], int] | None = None,
        replaying: Callable[[], bool] | None = None,
    ) -> None:
        self._place = place
        self._form = form
        self._group = group
        self._counter = counter
        self._replaying = replaying
        self._loader = Loader(config_for(load_config(config), form, micro_batch_size=micro_batch_size), place.topology)
        self._batches: Iterator[Batch] | None = None
        self._failure: ZephonError | None = None

    def __iter__(self) -> ZephonIterator:
        return self

    def __next__(self) -> dict[str, Tensor]:
        if self._failure is not None:
            raise self._failure
        try:
            return gpt_batch(self._take(), self._form)
        except ZephonError as error:
            # The trainer's log is of all ranks: say which one it was.
            self._failure = type(error)(f"rank at {self._place}: {error}")
            raise self._failure from error

    @property
    def loader(self) -> Loader:
        """The loader behind; its position is that after the last micro-batch given."""
        return self._loader

    @property
    def place(self) -> Place:
        """Where the rank stands."""
        return self._place

    def check(self) -> None:
        """Make the plan, so that what can't work shows now. Raises what the loader raises."""
        _ = self._loader.plan

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's part of the state after the last micro-batch given."""
        return self._loader.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state. Raises StateError where it isn't of this plan or lacks one of the rank's lanes."""
        self._loader.load_state_dict(state)
        self._failure = None

    def save_state(self) -> dict[str, Any]:
        """Return the whole state, joined over the data-parallel group, for Megatron's data loader checkpoint.

        A collective over the group: every data-parallel rank has to call it, at the same position. Plain values:
        {"zephon": the state, "consumed_train_samples": the trainer's counter or None}. Raises StateError on all of
        them where one is at another position, or where the trainer counts otherwise.
        """
        counter = None if self._counter is None else self._counter()
        part: dict[str, Any] | ZephonError
        try:
            self._check_counter(counter)
            part = self.state_dict()
        except ZephonError as error:
            part = error
        return {STREAM: gather_state(part, group=self._group), COUNTER: counter}

    def close(self) -> None:
        """Stop the loader's threads and processes."""
        self._loader.close()

    def _check_counter(self, counter: int | None) -> None:
        ahead = 0 if counter is None else self._loader.consumed - counter
        # Where Megatron is about to replay a step, it checkpoints in the midst of it, with the step's micro-batches.
        if ahead and not (ahead > 0 and self._replaying is not None and self._replaying()):
            raise StateError(
                f"rank at {self._place}: {self._loader.consumed} sequences were handed out, but the trainer counts "
                f"consumed_train_samples={counter}; take one micro-batch for each that is trained on"
            )

    def _take(self) -> Batch:
        if self._batches is None:
            self._batches = iter(self._loader)
        batch = next(self._batches, None)
        if batch is None:
            self._batches = iter(self._loader)
            batch = next(self._batches)
        return batch


class IdleIterator:
    """Stands in where a rank needs no data: gives empty dicts, reads nothing.

    Megatron-LM calls `next` on every pipeline stage when it skips iterations (`--iterations-to-skip`).
    """

    def __iter__(self) -> IdleIterator:
        return self

    def __next__(self) -> dict[str, Tensor]:
        return {}

    def save_state(self) -> None:
        """Nothing to save: the first stage's rank has it all."""

    def close(self) -> None:
        """Nothing to close."""
