"""The stream's position for a program's own torch.distributed.checkpoint saves: lanes, whatever the ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from zephon_torch.checkpoint import LoaderState

from zephon_lightning.stream import Stream


class LanesState:
    """A Stateful whose keys are lanes, saved after what was processed; `loaded` is told of a state loaded."""

    def __init__(self, stream: Stream, *, loaded: Callable[[], None]) -> None:
        self._stream = stream
        self._loaded = loaded
        self._lanes = LoaderState(stream.loader, consumed=lambda: stream.consumed)

    def state_dict(self) -> dict[str, Any]:
        """Return this rank's lanes; see zephon_torch.LoaderState."""
        return self._lanes.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from the lanes that DCP has read."""
        self._lanes.load_state_dict(dict(state_dict))
        self._stream.follow()
        self._loaded()
