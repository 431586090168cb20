"""Training streams with the state that Lightning asks loaders for: their data module's, the same on all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from zephon import Loader
from zephon_lightning.stream import FiniteStream, Stream


class Keeper(Protocol):
    """Who knows the whole state."""

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state."""
        ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a state."""
        ...


class StatefulStream(Stream):
    """An endless stream that saves and loads what its data module does.

    Lightning saves the state of loaders too, and calls those without one "not resumable".
    """

    def __init__(self, loader: Loader, keeper: Keeper) -> None:
        super().__init__(loader)
        self._keeper = keeper

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state; see ZephonDataModule.state_dict."""
        return self._keeper.state_dict()

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Nothing is left to do: the data module has loaded the same state, and perhaps gone on since."""


class StatefulFiniteStream(StatefulStream, FiniteStream):
    """A finite stream that saves and loads what its data module does."""
