"""All ranks of a topology in this process, one after another: ranks never talk, so that no order is lost by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import gcd
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from zephon.config import Config
from zephon.errors import ConfigError
from zephon.topology import Topology
from zephon.workload import joined_spread

if TYPE_CHECKING:
    from zephon.collate.batch import Batch

# Sizes named in an error; the rest follows from them.
LISTED = 24
# Figures of a report that add up over ranks.
ADDED = ("host_bytes", "images", "patches", "broken_images")


class RankRun(NamedTuple):
    """What one rank did: its state after `batches` micro-batches, its loader's report, seconds spent in it."""

    state: dict[str, Any]
    report: dict[str, Any]
    batches: int
    seconds: float


def global_batch_size(config: Config, dp_size: int) -> int:
    """Return the sequences of a step: the configuration's, or one micro-batch of each rank."""
    return config.micro_batch_size * dp_size if config.global_batch_size is None else config.global_batch_size


def check_dp_size(config: Config, dp_size: int, lanes: int) -> None:
    """Raise ConfigError where dp size and lanes don't divide each other, naming sizes that also fill a global batch."""
    if lanes % dp_size == 0 or dp_size % lanes == 0:
        return
    whole = config.global_batch_size
    fitting = (n for n in range(1, (whole or lanes) + 1) if lanes % n == 0 or n % lanes == 0)
    sizes = [n for n in fitting if whole is None or whole % n == 0]
    listed = ", ".join(map(str, sizes[:LISTED])) + (", …" if len(sizes) > LISTED else "")
    batch = "" if whole is None else f" with global_batch_size={whole}"
    more = f", and multiples of {lanes}" if whole is None else ""
    raise ConfigError(
        f"dp_size={dp_size} and lanes={lanes} don't divide each other; dp sizes that work{batch}: {listed}{more}"
    )


def micro_batches(config: Config, dp_size: int) -> int:
    """Return the micro-batches of a rank a step. Raises ConfigError where they don't fill a global batch."""
    whole, each = global_batch_size(config, dp_size), config.micro_batch_size * dp_size
    if whole % each:
        remedy = (
            f"set -o micro_batch_size={gcd(whole // dp_size, config.micro_batch_size)}"
            if whole % dp_size == 0
            else f"set -o global_batch_size={-(-whole // each) * each}"
        )
        raise ConfigError(
            f"global_batch_size={whole} is no multiple of micro_batch_size={config.micro_batch_size} times "
            f"dp_size={dp_size}; {remedy}"
        )
    return whole // each


def run_rank(
    config: Config,
    topology: Topology,
    *,
    state: Mapping[str, Any] | None,
    batches: int,
    each: Callable[[Batch], None],
) -> RankRun:
    """Read up to `batches` micro-batches of one rank from `state` on, and hand each to `each`."""
    # It imports torch, which takes a second or more: not for --help, nor for a wrong option.
    from zephon.loader import Loader

    with Loader(config, topology) as loader:
        if state is not None:
            loader.load_state_dict(state)
        begin = perf_counter()
        done = 0
        if batches:
            for batch in loader:
                each(batch)
                done += 1
                if done == batches:
                    break
        seconds = perf_counter() - begin
        return RankRun(loader.state_dict(), loader.report(), done, seconds)


def joined_report(runs: Sequence[RankRun], lanes: int) -> dict[str, Any]:
    """Return the reports of all ranks, from rank 0 on, as one.

    Ranks that share a lane all plan it and count its pulls, so that those of the first rank of a lane stand for it.
    """
    planners = runs[:lanes]
    return {
        "tokens": sum(run.report["tokens"] for run in runs),
        "capacity_tokens": sum(run.report["capacity_tokens"] for run in runs),
        "documents": sum(run.report["documents"] for run in runs),
        "wait_s": sum(run.report.get("wait_s", 0.0) for run in runs),
        **{name: sum(run.report.get(name, 0) for run in runs) for name in ADDED},
        "inexact_pixels": planners[0].report.get("inexact_pixels", []) if planners else [],
        "work": joined_spread([run.report.get("work", {}) for run in runs]),
        "pulled": _sums([run.report["pulled"] for run in planners]),
        "delivered": _sums([run.report["delivered"] for run in runs]),
        "bad_samples": _sums([run.report["bad_samples"] for run in planners]),
        "epochs": _ranges([run.report["epochs"] for run in runs]),
    }


def _sums(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    names = sorted({name for count in counts for name in count})
    return {name: sum(count.get(name, 0) for count in counts) for name in names}


def _ranges(ranges: Sequence[Mapping[str, Sequence[int]]]) -> dict[str, tuple[int, int]]:
    joined: dict[str, tuple[int, int]] = {}
    for given in ranges:
        for name, (low, high) in given.items():
            least, most = joined.get(name, (low, high))
            joined[name] = min(least, low), max(most, high)
    return joined
