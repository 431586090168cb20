"""From pieces of decoded bytes to whole lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter

import numpy as np

from zephon.formats.blocks import Int64s

NEWLINE = 10
SPACE = 32


def whole_lines(pieces: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, Iterator[tuple[int, bytes]]]]:
    """Yield each unit with its portions (offset in the unit, bytes), each of whole lines.

    Only a unit's last portion may lack the last line's end. Take a unit's portions before the next unit.
    """
    for unit, group in groupby(pieces, key=itemgetter(0)):
        yield unit, _portions(piece for _, piece in group)


def _portions(pieces: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    offset = 0
    # Pieces of a line that hasn't ended yet; joined once, so that a huge line costs no more than its bytes.
    waiting: list[bytes] = []
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        if not end:
            waiting.append(piece)
            continue
        portion = b"".join((*waiting, piece[:end])) if waiting else piece[:end]
        yield offset, portion
        offset += len(portion)
        waiting = [piece[end:]] if end < len(piece) else []
    if waiting:
        yield offset, b"".join(waiting)


def line_bounds(raw: bytes) -> tuple[Int64s, Int64s]:
    """Return starts and ends (behind the newline) of the lines that aren't blank; int64 [lines] each."""
    data = np.frombuffer(raw, dtype=np.uint8)
    ends = np.flatnonzero(data == NEWLINE).astype(np.int64) + 1
    if len(raw) and raw[-1] != NEWLINE:
        ends = np.append(ends, len(raw))
    starts = np.concatenate((np.zeros(min(1, len(ends)), dtype=np.int64), ends[:-1]))
    # A line of JSON begins with no space; the few that do are looked at one by one.
    keep = np.ones(len(starts), dtype=np.bool_)
    for line in np.flatnonzero(data[starts] <= SPACE):
        keep[line] = bool(raw[starts[line] : ends[line]].strip())
    return starts[keep], ends[keep]
