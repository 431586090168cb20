"""`zephon state show | diff | merge`: what a state's file holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from zephon.cli.state_file import read_state, write_state
from zephon.cli.terminal import facts, number, size, stdout, table
from zephon.lanes.state import LaneState
from zephon.state import decode_lane, merge_states, stream_digest

EXIT_DIFFERENT = 1
SHOWN = 20
SOURCE_FIELDS = ("passed", "next_k", "pulls", "bad", "empty", "open")

app = typer.Typer(help="Look into states, compare and merge them.", no_args_is_help=True)

FILE_HELP = (
    "A state that `zephon run --state-out` wrote, or a checkpoint of torch.save with one in it; FILE:place chooses "
    "among several, as in checkpoint.pt:stream."
)
File = Annotated[Path, typer.Argument(metavar="FILE", help=FILE_HELP)]


@app.command("show")
def show(file: File) -> None:
    """Show consumed, digest, plan and, for each lane, its place, sources, held documents, digest and bytes."""
    state = read_state(file)
    console = stdout()
    lanes = state["lanes"]
    complete = len(lanes) == state["plan"]["lanes"]
    head = [
        ("consumed", number(state["consumed"])),
        ("lanes", f"{len(lanes)} of {state['plan']['lanes']}, {size(sum(map(len, lanes.values())))}"),
        ("digest", stream_digest(state) if complete else "- (lanes of other ranks are missing)"),
    ]
    console.print(facts(head))
    plan = table("plan", "value", left=["value"])
    for field, value in _flat(state["plan"]):
        plan.add_row(field, value)
    console.print()
    console.print(plan)
    rows = table("lane", "pass", "sequences", "entry", "sources: next k, pulls", "held", "tokens", "digest", "bytes")
    for name, data in lanes.items():
        lane = decode_lane(data, place=f"{file}: lane {name}")
        held = [item for operator in lane.operators for item in operator.held]
        rows.add_row(
            name,
            str(lane.pass_number),
            number(lane.sequences),
            str(lane.entry),
            "; ".join(f"{source.name}: {source.next_k}, {source.pulls}" for source in lane.sources),
            str(len(held)),
            number(sum(item.length - item.start for item in held)),
            lane.digest.hex(),
            str(len(data)),
        )
    console.print()
    console.print(rows)


@app.command("diff")
def diff(
    a: File,
    b: File,
    everything: Annotated[bool, typer.Option("--all", help=f"Show more than {SHOWN} differences.")] = False,
) -> None:
    """Name what differs between two states; exit 1 if there is anything."""
    first, second = read_state(a), read_state(b)
    rows = table("field", str(a), str(b), left=[str(a), str(b)])
    found = list(_differences(first, second, str(a), str(b)))
    shown = found if everything else found[:SHOWN]
    for row in shown:
        rows.add_row(*row)
    console = stdout()
    if first["consumed"] != second["consumed"]:
        console.print(
            f"positions differ, {number(first['consumed'])} and {number(second['consumed'])} sequences consumed: "
            "digests can't be compared"
        )
    console.print(rows if found else "equal")
    if len(found) > len(shown):
        console.print(f"… and {number(len(found) - len(shown))} more; --all shows them")
    if found:
        raise typer.Exit(EXIT_DIFFERENT)


@app.command("merge")
def merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILES", help="The ranks' states.")],
    out: Annotated[Path, typer.Option(help="File for the whole state.")],
) -> None:
    """Join the states of several ranks, taken at one position."""
    merged = merge_states([read_state(file) for file in files])
    write_state(out, merged)
    stdout().print(f"{out}: {len(merged['lanes'])} of {merged['plan']['lanes']} lanes at {number(merged['consumed'])}")


def _differences(a: Mapping[str, Any], b: Mapping[str, Any], at: str, bt: str) -> Iterator[tuple[str, str, str]]:
    if a["consumed"] != b["consumed"]:
        yield "consumed", str(a["consumed"]), str(b["consumed"])
    yield from _unequal("plan.", _flat(a["plan"]), _flat(b["plan"]))
    for name in sorted({*a["lanes"], *b["lanes"]}, key=int):
        one, other = a["lanes"].get(name), b["lanes"].get(name)
        if one is None or other is None:
            yield f"lane {name}", _bytes(one), _bytes(other)
        elif one != other:
            lanes = decode_lane(one, place=f"{at}: lane {name}"), decode_lane(other, place=f"{bt}: lane {name}")
            yield from _unequal(f"lane {name}: ", _lane_fields(lanes[0]), _lane_fields(lanes[1]))


def _unequal(place: str, a: Iterable[tuple[str, str]], b: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Yield the fields whose values differ, in the order of `a`, then those that only `b` has."""
    first, second = dict(a), dict(b)
    for field in dict.fromkeys([*first, *second]):
        one, other = first.get(field, "-"), second.get(field, "-")
        if one != other:
            yield f"{place}{field}", one, other


def _bytes(data: bytes | None) -> str:
    return "missing" if data is None else f"{len(data)} bytes"


def _lane_fields(lane: LaneState) -> Iterator[tuple[str, str]]:
    """Yield everything that a lane remembers, one small value a field."""
    yield "pass", str(lane.pass_number)
    yield "sequences", str(lane.sequences)
    yield "entry", str(lane.entry)
    yield "digest", lane.digest.hex()
    for source in lane.sources:
        for field in SOURCE_FIELDS:
            yield f"{source.name}.{field}", str(getattr(source, field))
    for place, operator in enumerate(lane.operators):
        for name, value in operator.state.items():
            yield f"operator {place}.{name}", str(value)
        for item in operator.held:
            reference = f"{item.source}/{item.q}/{item.sample}/{item.part}"
            yield f"operator {place} holds {reference}", f"from {item.start} of {item.length} tokens, {item.meta}"


def _flat(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield the (dotted name, text) of each plain value in nested mappings and lists."""
    if isinstance(value, Mapping) and value:
        for name in sorted(value):
            yield from _flat(value[name], f"{place}.{name}" if place else str(name))
    elif isinstance(value, list | tuple) and value:
        for i, inner in enumerate(value):
            yield from _flat(inner, f"{place}[{i}]")
    else:
        yield place, "-" if value is None else str(value)
