"""The stream in Hugging Face's Trainer: its batches, and its position in the Trainer's checkpoints.

The position is that after the last optimizer step. The Trainer fetches all micro-batches of a step before it trains on
the first, and drops what it fetched where a step is left early.
"""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from torch.distributed import ProcessGroup
from transformers import TrainerCallback

from zephon import Batch, Config, ConfigError, Loader, StateError, Topology, load_config
from zephon.read_config import ConfigLike
from zephon_torch.checkpoint import WholeState
from zephon_torch.gather import host_group
from zephon_torch.labels import masked_labels
from zephon_torch.topology import topology_from_world

# Under which trainer_state.json has the state. No class's name: the Trainer would make such callbacks anew.
KEY = "zephon"


def trainer_inputs(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return a micro-batch as the arguments of a causal language model of transformers.

    input_ids, position_ids, labels and shift_labels (int64 [b, S]), and attention_mask where the batch has one. The
    labels are the next tokens already, -100 where the loss mask is 0: as shift_labels the model doesn't shift them.
    """
    labels = masked_labels(batch)
    inputs = {
        "input_ids": batch["tokens"],
        "position_ids": batch["position_ids"],
        "labels": labels,
        "shift_labels": labels,
    }
    return inputs | {name: batch[name] for name in ("attention_mask",) if name in batch}


class TrainerStream(TrainerCallback):
    """Give it to the Trainer's callbacks, as the last one, and return it from `get_train_dataloader`.

    It iterates over `trainer_inputs` of the rank's micro-batches, and puts the whole state, as text, into the
    trainer_state.json of each checkpoint; training that resumes from one goes on there, on any number of processes.
    The loader is made when first needed, so that the processes have met by then; `topology` is by default all of them.

    Raises ConfigError for a stream with a length (of passes, the Trainer counts steps, which change with the number of
    processes: set max_steps) and without ignore_data_skip; StateError for a checkpoint without the stream's state,
    and, on all ranks, where a callback behind this one asks for a checkpoint, which then has no position.
    """

    def __init__(self, config: ConfigLike, topology: Topology | None = None) -> None:
        self._config: Config = load_config(config)
        if self._config.length is not None:
            raise ConfigError(
                f"length={self._config.length}, but the Trainer's passes change with the number of processes; "
                "leave length out and set max_steps"
            )
        self._topology = topology
        self._loader: Loader | None = None
        self._group: ProcessGroup | None = None
        # Where the micro-batches end that were handed out and not trained on yet.
        self._handed: deque[int] = deque()
        # After the last micro-batch trained on, and after the last optimizer step.
        self._trained = self._stepped = 0

    @property
    def loader(self) -> Loader:
        """The loader of this process."""
        if self._loader is None:
            self._loader = Loader(self._config, topology_from_world() if self._topology is None else self._topology)
        return self._loader

    def __iter__(self) -> Iterator[dict[str, Any]]:
        loader = self.loader
        if self._handed:
            # Left over from a step that was broken off.
            self._handed.clear()
            loader.load_state_dict(loader.state_dict(consumed=self._trained))
        for batch in loader:
            self._handed.append(loader.consumed)
            yield self.inputs(batch)

    def inputs(self, batch: Batch) -> dict[str, Any]:
        """Return what the Trainer gets for a micro-batch; for models that want other arguments, override it."""
        return trainer_inputs(batch)

    def close(self) -> None:
        """Stop the loader's threads and processes."""
        if self._loader is not None:
            self._loader.close()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Go on from the checkpoint that the Trainer has read, if it has."""
        if not args.ignore_data_skip:
            raise ConfigError(
                "ignore_data_skip isn't set, and the Trainer would skip data after a resume that this stream doesn't "
                "give again; pass TrainingArguments(ignore_data_skip=True)"
            )
        # A collective: here are all processes, and not where checkpoints are written.
        self._group = host_group()
        saved = state.stateful_callbacks.get(KEY)
        if saved is not None:
            self.loader.load_state_dict(_from_text(saved))
            self._handed.clear()
            self._trained = self.loader.consumed
        elif state.global_step:
            raise StateError(
                f"the checkpoint of step {state.global_step} has no state of the stream in its trainer_state.json; "
                "resume from one that was written with a TrainerStream among the callbacks"
            )
        self._stepped = self._trained

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Forget the state of the step before: rather none in a checkpoint than an old one."""
        state.stateful_callbacks.pop(KEY, None)

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count a micro-batch as trained on."""
        self._trained = self._handed.popleft()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count a step's last micro-batch; gather the state if a checkpoint follows."""
        self._trained = self._stepped = self._handed.popleft()
        if control.should_save:
            self._gather(state)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Gather the state if a checkpoint follows."""
        if control.should_save:
            self._gather(state)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Gather the state: whether this is the best model so far, and saved as such, is known only afterwards."""
        self._gather(state)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Refuse to go on where a checkpoint was written without the position."""
        if KEY not in state.stateful_callbacks:
            raise StateError(
                f"the checkpoint of step {state.global_step} lacks the stream's position, because a callback behind "
                "TrainerStream asked for it; pass TrainerStream as the last of the callbacks"
            )

    def _gather(self, state: Any) -> None:
        """Put the whole state where the Trainer saves it: a collective."""
        whole = WholeState(self.loader, consumed=lambda: self._stepped, group=self._group).state_dict()
        state.stateful_callbacks[KEY] = _to_text(whole)


def _to_text(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state as JSON can hold it: lanes in base64."""
    return {**state, "lanes": {lane: base64.b64encode(data).decode() for lane, data in state["lanes"].items()}}


def _from_text(saved: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {**saved, "lanes": {lane: base64.b64decode(text) for lane, text in saved["lanes"].items()}}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise StateError(
            f"trainer_state.json has no state of the stream under {KEY!r}: {error!r}; resume from another checkpoint"
        ) from error
