"""`zephon verify`: the same stream on every topology, backend and prefetch depth, and across cuts?"""

from __future__ import annotations

import sys
from itertools import product
from math import gcd
from typing import Annotated, Any, NamedTuple

import typer
from msgspec.structs import replace

from zephon.cli.arguments import ConfigPath, Overrides, Steps, names, numbers
from zephon.cli.delivered import Delivered
from zephon.cli.ranks import micro_batches, run_rank
from zephon.cli.terminal import Advance, counted, note, progress, stdout, table
from zephon.config import Config
from zephon.errors import ConfigError
from zephon.plan import lanes_for
from zephon.read_config import load_config
from zephon.registry import BACKENDS, resolve
from zephon.state import merge_states, stream_digest
from zephon.topology import Topology, lanes_of

EXIT_DIFFERENT = 1


class Way(NamedTuple):
    """One way to run the stream: dp sizes (several: one after each cut, in turn), backend, workers, prefetch."""

    dp_sizes: tuple[int, ...]
    backend: str
    workers: int
    prefetch: int
    cut_every: int | None


class Outcome(NamedTuple):
    """What a way gave: digest of the lanes and of the rows handed out, and what of [0, consumed) went wrong."""

    consumed: int
    digest: str
    rows: str
    missing: int
    repeated: int
    seconds: float


def command(
    config: ConfigPath,
    steps: Steps,
    dp_sizes: Annotated[str, typer.Option(metavar="R,…", help="Data-parallel sizes.")] = "1,2",
    backends: Annotated[str, typer.Option(metavar="KIND,…", help="Backends.")] = "inline,threads",
    workers: Annotated[str, typer.Option(metavar="N,…", help="Workers of threads and processes.")] = "2",
    prefetch: Annotated[str, typer.Option(metavar="N,…", help="Micro-batches made ahead.")] = "2",
    resume_every: Annotated[
        int | None,
        typer.Option(min=1, metavar="K", help="Cut each run every K steps; the next dp size goes on from the state."),
    ] = None,
    override: Overrides = None,
) -> None:
    """Read N global batches in every combination and compare the streams; exit 1 where they differ."""
    settings = load_config(config, override or ())
    if resume_every is not None and resume_every >= steps:
        raise ConfigError(
            f"--resume-every {resume_every} cuts no run of --steps {steps}; set it lower than the number of steps"
        )
    sizes = numbers(dp_sizes, option="--dp-sizes", least=1)
    kinds = names(backends, option="--backends")
    for kind in kinds:
        resolve(BACKENDS, kind, place="--backends")
    ways = _ways(
        sizes,
        kinds,
        numbers(workers, option="--workers", least=1),
        numbers(prefetch, option="--prefetch", least=0),
        resume_every,
    )
    suited = {size: _suited(settings, size, sizes) for size in sizes}
    outcomes: list[tuple[Way, Outcome]] = []
    work = sum(_work(suited, way, steps) for way in ways)
    with progress("micro-batches", work) as advance:
        for way in ways:
            outcomes.append((way, _run(suited, way, steps, advance)))
            if not sys.stderr.isatty():
                note(f"{len(outcomes)} of {len(ways)} done: {_describe(way)}, {outcomes[-1][1].seconds:.1f} s")
    wrong = _show(outcomes, steps)
    if wrong:
        raise typer.Exit(EXIT_DIFFERENT)


def _ways(sizes: list[int], kinds: list[str], workers: list[int], depths: list[int], cut: int | None) -> list[Way]:
    """Return the combinations; with cuts, the first way uncut before them, to compare with."""
    # The inline backend has no workers, so that one number of them is enough.
    made = [
        (kind, count, depth)
        for kind, count, depth in product(kinds, workers, depths)
        if kind != "inline" or count == workers[0]
    ]
    if cut is None:
        return [Way((size,), *rest, None) for rest, size in product(made, sizes)]
    turns = [tuple(sizes[i:] + sizes[:i]) for i in range(len(sizes))]
    return [Way(tuple(sizes[:1]), *made[0], None), *[Way(turn, *rest, cut) for rest, turn in product(made, turns)]]


def _suited(config: Config, dp_size: int, sizes: list[int]) -> Config:
    """Return the configuration with a micro-batch that suits a dp size: it is no part of the order.

    Raises ConfigError for a size that suits neither the lanes nor the global batch.
    """
    whole = config.global_batch_size
    if whole is None:
        whole = config.micro_batch_size
        for size in sizes:
            whole = whole * size // gcd(whole, size)
    lanes_of(Topology(dp_rank=0, dp_size=dp_size), lanes_for(config, None))
    if whole % dp_size:
        raise ConfigError(
            f"dp_size={dp_size} doesn't divide global_batch_size={whole}; leave it out of --dp-sizes, "
            "or set -o global_batch_size to a multiple"
        )
    return replace(
        config,
        lanes=lanes_for(config, None),
        global_batch_size=whole,
        micro_batch_size=gcd(whole // dp_size, config.micro_batch_size),
    )


def _work(suited: dict[int, Config], way: Way, steps: int) -> int:
    """Return the micro-batches of a way, over all its ranks."""
    return sum(count * size * micro_batches(suited[size], size) for size, count in _legs(way, steps))


def _legs(way: Way, steps: int) -> list[tuple[int, int]]:
    """Return (dp size, steps) of each part between cuts."""
    every = way.cut_every or steps
    return [
        (way.dp_sizes[number % len(way.dp_sizes)], min(every, steps - begin))
        for number, begin in enumerate(range(0, steps, every))
    ]


def _run(suited: dict[int, Config], way: Way, steps: int, advance: Advance) -> Outcome:
    """Read a way's steps, leg by leg, each from the joined states of the one before."""
    delivered = Delivered()
    state: dict[str, Any] = {}
    seconds = 0.0
    for dp_size, count in _legs(way, steps):
        if state and _ended(state):
            break
        config = suited[dp_size]
        backend = replace(config.backend, kind=way.backend, workers=way.workers, prefetch=way.prefetch)
        config = replace(config, backend=backend)
        batches = count * micro_batches(config, dp_size)
        states = []
        for rank in range(dp_size):
            topology = Topology(dp_rank=rank, dp_size=dp_size)
            run = run_rank(config, topology, state=state or None, batches=batches, each=delivered.add)
            advance(batches)
            states.append(run.state)
            seconds += run.seconds
        state = merge_states(states)
    consumed = state["consumed"]
    return Outcome(
        consumed,
        stream_digest(state),
        delivered.digest(consumed),
        delivered.missing(0, consumed),
        delivered.repeated,
        seconds,
    )


def _ended(state: dict[str, Any]) -> bool:
    """Return whether a finite stream's pass is over: another iteration would begin the next one."""
    length = state["plan"]["length"]
    return length is not None and state["consumed"] >= length


def _describe(way: Way) -> str:
    """Return a way in a line: dp sizes, backend and the rest."""
    workers = "" if way.backend == "inline" else f", {counted(way.workers, 'worker')}"
    return f"dp size {' → '.join(map(str, way.dp_sizes))}, {way.backend}{workers}, prefetch {way.prefetch}"


def _show(outcomes: list[tuple[Way, Outcome]], steps: int) -> int:
    """Print the table and the verdict; return how many ways differ from the first or lost or repeated a row."""
    reference = outcomes[0][1]
    rows = table("dp size", "backend", "workers", "prefetch", "stream digest", "rows handed out", "seconds", "")
    wrong = 0
    for way, outcome in outcomes:
        faults = _faults(outcome, reference)
        wrong += bool(faults)
        rows.add_row(
            " → ".join(map(str, way.dp_sizes)),
            way.backend,
            "-" if way.backend == "inline" else str(way.workers),
            str(way.prefetch),
            outcome.digest,
            outcome.rows[:16],
            f"{outcome.seconds:.2f}",
            "; ".join(faults) or "same",
        )
    console = stdout()
    console.print(rows)
    every = next((way.cut_every for way, _ in outcomes if way.cut_every), None)
    cuts = f", cut every {counted(every, 'step') if every > 1 else 'step'}" if every else ""
    verdict = f"{wrong} of {len(outcomes)} ways differ" if wrong else f"{counted(len(outcomes), 'way')}, one stream"
    console.print(
        f"{verdict}: {steps} global {'batch' if steps == 1 else 'batches'}, "
        f"{counted(reference.consumed, 'sequence')}{cuts}"
    )
    return wrong


def _faults(outcome: Outcome, reference: Outcome) -> list[str]:
    faults = []
    if outcome.consumed != reference.consumed:
        faults.append(f"consumed {outcome.consumed}")
    if outcome.digest != reference.digest:
        faults.append("digest differs")
    if outcome.rows != reference.rows:
        faults.append("rows differ")
    if outcome.missing:
        faults.append(f"{outcome.missing} rows missing")
    if outcome.repeated:
        faults.append(f"{outcome.repeated} rows repeated")
    return faults
