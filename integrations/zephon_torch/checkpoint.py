"""Lanes in torch.distributed.checkpoint: saved by any number of ranks, loaded by any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from zephon import Loader, StateError

VERSION, PLAN, CONSUMED = "version", "plan", "consumed"
LANE = "lane_"


class LoaderState:
    """A Stateful of torch.distributed.checkpoint for a loader: one key a lane, none a rank.

    {"version", "plan", "consumed", "lane_00000", …}: the lanes that this rank owns, each as bytes. When loading, DCP
    asks for the keys first, and so reads the lanes that the rank owns *now*. Ranks that share a lane write the same
    value; DCP keeps one. `consumed`, if given, returns the position to save (sequences over all ranks), for trainers
    that fetch ahead of what they train on; it has to be the end of a micro-batch that the loader still knows.

    Raises StateError where the position isn't known, or the checkpoint is of another plan. Where the number of lanes
    differs, DCP itself names the key that it misses.
    """

    def __init__(self, loader: Loader, *, consumed: Callable[[], int] | None = None) -> None:
        self._loader = loader
        self._consumed = consumed

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's keys and values."""
        state = self._loader.state_dict(consumed=None if self._consumed is None else self._consumed())
        lanes = {f"{LANE}{int(lane):05d}": data for lane, data in state["lanes"].items()}
        # Opaque, because DCP takes nested mappings apart.
        return {
            VERSION: state["version"],
            PLAN: msgspec.json.encode(state["plan"]),
            CONSUMED: state["consumed"],
            **lanes,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what DCP has read."""
        try:
            state = {
                "version": state_dict[VERSION],
                "plan": msgspec.json.decode(state_dict[PLAN]),
                "consumed": state_dict[CONSUMED],
                "lanes": {
                    str(int(key.removeprefix(LANE))): data for key, data in state_dict.items() if key.startswith(LANE)
                },
            }
        except (KeyError, ValueError, TypeError, msgspec.DecodeError) as error:
            raise StateError(
                f"no state of a Zephon loader (it has: {', '.join(map(str, state_dict))}): {error!r}; "
                "load a checkpoint that LoaderState wrote"
            ) from error
        self._loader.load_state_dict(state)
