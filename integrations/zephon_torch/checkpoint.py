"""A loader's position in checkpoints: lanes in torch.distributed.checkpoint, or the whole state in one file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from torch.distributed import ProcessGroup

from zephon import ConfigError, Loader, StateError, ZephonError
from zephon_torch.gather import gather_state

VERSION, PLAN, CONSUMED = "version", "plan", "consumed"
LANE = "lane_"


class LoaderState:
    """A Stateful of torch.distributed.checkpoint for a loader: one key a lane, none a rank.

    {"version", "plan", "consumed", "lane_00000", …}: the lanes that this rank owns, each as bytes. When loading, DCP
    asks for the keys first, and so reads the lanes that the rank owns *now*. Ranks that share a lane write the same
    value; DCP keeps one. `consumed`, if given, returns the position to save (sequences over all ranks), for trainers
    that fetch ahead of what they train on; it has to be the end of a micro-batch that the loader still knows.

    Raises ConfigError where `lanes` isn't set and the stream has no end: DCP has to name the lanes before it reads
    the state that would say how many there are. Raises StateError where the position isn't known, or the checkpoint
    is of another plan. Of a checkpoint that lacks a key, DCP itself says which.
    """

    def __init__(self, loader: Loader, *, consumed: Callable[[], int] | None = None) -> None:
        if loader.config.lanes is None and loader.config.length is None:
            raise ConfigError(
                "lanes isn't set, and lanes in torch.distributed.checkpoint are read by number; "
                f"set lanes in the configuration (this stream's: {loader.plan['lanes']})"
            )
        self._loader = loader
        self._consumed = consumed

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's keys and values."""
        state = _part(self._loader, self._consumed)
        lanes = {key_of(int(lane)): data for lane, data in state["lanes"].items()}
        # Opaque, because DCP takes nested mappings apart.
        return {
            VERSION: state["version"],
            PLAN: msgspec.json.encode(state["plan"]),
            CONSUMED: state["consumed"],
            **lanes,
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from what DCP has read."""
        self._loader.load_state_dict(state_of(state_dict))


class WholeState:
    """The whole stream's state through `state_dict` and `load_state_dict`, for checkpoints that are one file.

    `state_dict` is a collective over `group`, as `gather_state`: all ranks call it, and get equal states, whichever
    of them writes. `load_state_dict` is none, and takes a whole state of any number of ranks. `consumed` as for
    LoaderState. Raises StateError on all ranks where one of them can't make its part.
    """

    def __init__(
        self, loader: Loader, *, group: ProcessGroup | None = None, consumed: Callable[[], int] | None = None
    ) -> None:
        self._loader = loader
        self._group = group
        self._consumed = consumed

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state: plain values and bytes, no rank in it, loadable with `weights_only=True`."""
        part: Mapping[str, Any] | ZephonError
        try:
            part = _part(self._loader, self._consumed)
        except ZephonError as error:
            # The others wait for this rank's part: all ranks raise its error.
            part = error
        return gather_state(part, group=self._group)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a whole state."""
        self._loader.load_state_dict(state_dict)


def _part(loader: Loader, consumed: Callable[[], int] | None) -> dict[str, Any]:
    return loader.state_dict(consumed=None if consumed is None else consumed())


def key_of(lane: int) -> str:
    """Return the key that a lane is saved under."""
    return f"{LANE}{lane:05d}"


def state_of(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state that LoaderState's keys and values are of; StateError where they are of something else."""
    try:
        return {
            "version": entries[VERSION],
            "plan": msgspec.json.decode(entries[PLAN]),
            "consumed": entries[CONSUMED],
            "lanes": {str(int(key.removeprefix(LANE))): data for key, data in entries.items() if key.startswith(LANE)},
        }
    except (KeyError, ValueError, TypeError, msgspec.DecodeError) as error:
        raise StateError(
            f"no state of a Zephon loader (it has: {', '.join(map(str, entries))}): {error!r}; "
            "load a checkpoint that LoaderState wrote"
        ) from error
