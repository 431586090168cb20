"""What `zephon run` says of images and of how evenly work is spread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zephon.cli.terminal import number, size, table

UNITS = {"row": "rows", "micro_batch": "micro-batches"}


def image_lines(report: Mapping[str, Any], seconds: float, sequences: int) -> list[tuple[str, str]]:
    """Return the facts about images, if there are any, and about the bytes that go to the device."""
    lines = [("host to device", f"{size(report['host_bytes'] / sequences)} a sequence")] if sequences else []
    if not report["work"]:
        return lines
    if report["images"]:
        speed = f"{number(report['images'] / seconds)} images/s" if seconds else "-"
        lines += [
            ("images", f"{number(report['images'])} ({speed})"),
            ("patches", f"{number(report['patches'])} ({number(report['patches'] / report['images'])} an image)"),
        ]
    if report["broken_images"]:
        lines.append(("broken images", f"{number(report['broken_images'])} (blank, and not learned from)"))
    if report["inexact_pixels"]:
        names = ", ".join(report["inexact_pixels"])
        lines.append(("pixels", f"of {names} by a GPU where it can; digests don't cover their last bits"))
    return lines


def spread_table(work: Mapping[str, Any]) -> Any:
    """Return the spread of tokens, patches and cost over rows and micro-batches, as a table."""
    rows = table("spread over", "of", "mean", "deviation", "lowest", "highest", left=("of",))
    for unit, measures in work.items():
        for measure, values in measures.items():
            mean = values["mean"]
            if not values["max"]:
                continue
            rows.add_row(
                UNITS[unit],
                measure,
                number(mean),
                f"{100 * values['std'] / mean:.1f} %",
                number(values["min"]),
                number(values["max"]),
            )
    return rows
