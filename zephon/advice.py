"""What a configuration does that its owner may not want: worth a line, but no error."""

from __future__ import annotations

from collections.abc import Mapping

from zephon.config import Config, Source
from zephon.count import Counted
from zephon.formats.index import SourceIndex
from zephon.read_config import epochs_of

# Of a counted stream's rows: with fewer that hold documents, its lanes end far apart.
MIN_FILLED = 0.9


def advice(
    config: Config, indices: Mapping[str, SourceIndex], lanes: int, *, counted: Counted | None = None
) -> list[str]:
    """Return a line on each source or setting that makes samples repeat early or rows empty; see docs/concepts.md."""
    scattered = {
        name: line for name in sorted(indices) if (line := _scattered(name, indices[name], config.sources[name]))
    }
    lines = list(scattered.values())
    endless = [name for name in sorted(indices) if epochs_of(config, name) is None]
    for name in endless:
        blocks = indices[name].num_blocks
        if blocks < lanes * config.spread and name not in scattered:
            lines.append(
                f"sources.{name}: {_number(blocks, 'block')} for {_number(lanes, 'lane')} × spread {config.spread}: "
                f"samples come again before others have come once; {_remedy(indices[name])}"
            )
    waiting = lanes * config.pack.pool if config.pack.kind in ("best_fit", "best_fit_split", "first_fit") else 0
    samples = sum(indices[name].num_samples for name in endless)
    if endless and len(endless) == len(indices) and samples < waiting and not lines:
        lines.append(
            f"sources: {_number(samples, 'sample')}, and {_number(lanes, 'lane')} × pack.pool {config.pack.pool} wait "
            "to be packed: samples come again before others have come once; fewer lanes or a smaller pool help"
        )
    if counted is not None and counted.filled < MIN_FILLED * counted.rows:
        lines.append(
            f"length=count: {counted.rows - counted.filled:,} of {counted.rows:,} rows are all masked, for the "
            f"{_number(lanes, 'lane')} end apart; fewer lanes or a smaller block_samples help"
        )
    return lines


def _scattered(name: str, index: SourceIndex, source: Source) -> str | None:
    """Return a line on a source with blocks that hold far more samples than they may, None where it has none."""
    if index.num_samples <= 2 * index.num_blocks * source.block_samples:
        return None
    return (
        f"sources.{name}: {_number(index.num_samples, 'sample')} in {_number(index.num_blocks, 'block')}, though "
        f"block_samples is {source.block_samples}: members of a sample don't stand together in the shards; rewrite "
        "them with `zephon pack`"
    )


def _remedy(index: SourceIndex) -> str:
    return "a smaller block_samples helps" if index.num_blocks < index.num_samples else "fewer lanes help"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
