"""Sources so small that a lane holds blocks of several epochs open: worth a line, but no error."""

from __future__ import annotations

from zephon.cli.terminal import counted
from zephon.config import Config
from zephon.read_config import epochs_of


def overlap(config: Config, source: str, num_blocks: int, lanes: int) -> str | None:
    """Return a line about an endless source with fewer blocks than its lanes hold open, None where it has enough."""
    if epochs_of(config, source) is not None or num_blocks >= lanes * config.spread:
        return None
    return (
        f"sources.{source}: {counted(num_blocks, 'block')} for {counted(lanes, 'lane')} × spread {config.spread}: "
        "epochs overlap; a smaller block_samples helps"
    )
