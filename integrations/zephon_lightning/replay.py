"""A state some way after another, for checkpoints that one rank had to write alone."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any

from msgspec.structs import replace

from zephon import Config, Loader, StateError, Topology


def advance(config: Config, topology: Topology, state: Mapping[str, Any], ahead: int) -> dict[str, Any]:
    """Return a rank's state `ahead` sequences after a whole one, by reading and dropping them.

    Takes as long as reading them. Raises StateError where `ahead` isn't a whole number of sequences a rank.
    """
    if ahead % topology.dp_size:
        raise StateError(
            f"the checkpoint was written by an interrupted run, {ahead} sequences after its last whole state, and "
            f"dp_size={topology.dp_size} doesn't divide that; resume on a dp size that does, or from an earlier one"
        )
    rows = ahead // topology.dp_size
    size = gcd(rows, config.micro_batch_size)
    with Loader(replace(config, micro_batch_size=size, device="cpu"), topology) as loader:
        loader.load_state_dict(state)
        target = loader.consumed + ahead
        while loader.consumed < target:
            # Several passes of a finite stream may lie between.
            for _ in loader:
                if loader.consumed >= target:
                    break
        return loader.state_dict()
