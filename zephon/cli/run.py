"""`zephon run`: read some global batches and say what they held."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from zephon.cli.arguments import ConfigPath, Overrides, Steps
from zephon.cli.ranks import RankRun, check_dp_size, global_batch_size, joined_report, micro_batches, run_rank
from zephon.cli.state_file import read_state, write_state
from zephon.cli.terminal import facts, number, progress, share, stdout, table
from zephon.cli.work import image_lines, spread_table
from zephon.config import Config
from zephon.plan import lanes_for
from zephon.read_config import load_config, mixtures
from zephon.state import merge_states, stream_digest
from zephon.topology import Topology


def command(
    config: ConfigPath,
    steps: Steps,
    dp_size: Annotated[int, typer.Option(help="Data-parallel ranks.")] = 1,
    dp_rank: Annotated[int | None, typer.Option(help="Only this rank; unset: all, one after another.")] = None,
    override: Overrides = None,
    state_in: Annotated[Path | None, typer.Option(help="Go on from this state.")] = None,
    state_out: Annotated[Path | None, typer.Option(help="Write the state after the last batch here.")] = None,
) -> None:
    """Read N global batches on every rank: throughput, packing, mixture, epochs, digest."""
    settings = load_config(config, override or ())
    topologies = [Topology(dp_rank=r, dp_size=dp_size) for r in (range(dp_size) if dp_rank is None else [dp_rank])]
    state = None if state_in is None else read_state(state_in)
    check_dp_size(settings, dp_size, lanes_for(settings, None if state is None else state["plan"]["lanes"]))
    batches = steps * micro_batches(settings, dp_size)
    with progress("micro-batches", batches * len(topologies)) as advance:
        runs = [
            run_rank(settings, topology, state=state, batches=batches, each=lambda _: advance(1))
            for topology in topologies
        ]
    merged = merge_states([run.state for run in runs])
    if state_out is not None:
        write_state(state_out, merged)
    _show(settings, runs, merged, dp_size=dp_size, start=0 if state is None else state["consumed"])


def _show(config: Config, runs: list[RankRun], state: dict[str, Any], *, dp_size: int, start: int) -> None:
    report = joined_report(runs, state["plan"]["lanes"])
    seconds, consumed = sum(run.seconds for run in runs), state["consumed"]
    read = consumed - start
    complete = all(str(lane) in state["lanes"] for lane in range(state["plan"]["lanes"]))
    # Ranks run one after another here, so that their seconds add up.
    speed = number(report["tokens"] / seconds) if seconds else "-"
    lines = [
        ("ranks", f"{len(runs)} of {dp_size}"),
        ("sequences", f"{number(read)} (consumed: {number(consumed)})"),
        ("global batches", f"{read / global_batch_size(config, dp_size):g}"),
        ("documents", number(report["documents"])),
        ("tokens", number(report["tokens"])),
        ("packing efficiency", share(report["tokens"], report["capacity_tokens"])),
        ("throughput", f"{speed} tokens/s in {seconds:.2f} s"),
        ("waited for data", f"{report['wait_s']:.2f} s"),
        *image_lines(report, seconds, sum(run.report["sequences"] for run in runs)),
        ("digest", stream_digest(state) if complete else "- (lanes of other ranks are missing)"),
    ]
    console = stdout()
    console.print(facts(lines))
    console.print()
    console.print(_mixture(config, report, consumed))
    if report["work"]:
        console.print()
        console.print(spread_table(report["work"]))
    if sum(report["pulled"].values()) > sum(report["delivered"].values()):
        console.print("pulled tokens that weren't delivered: the rest waits in the packers")


def _mixture(config: Config, report: dict[str, Any], consumed: int) -> Any:
    """Return the table of sources: the weights in force, and what was pulled and delivered of each."""
    weights = [weights for start, weights in mixtures(config) if start <= consumed][-1]
    pulled, delivered = report["pulled"], report["delivered"]
    rows = table("source", "weight", "pulled tokens", "share", "delivered tokens", "share", "epochs", "bad samples")
    for name in sorted(config.sources):
        low, high = report["epochs"].get(name, (0, 0))
        rows.add_row(
            name,
            share(weights.get(name, 0), sum(weights.values())),
            number(pulled.get(name, 0)),
            share(pulled.get(name, 0), sum(pulled.values())),
            number(delivered.get(name, 0)),
            share(delivered.get(name, 0), sum(delivered.values())),
            f"{low}" if low == high else f"{low} to {high}",
            number(report["bad_samples"].get(name, 0)),
        )
    return rows
