"""Where a document with images is cut, so that no piece is too long and no image is cut."""

from __future__ import annotations

from collections.abc import Sequence


def cut(length: int, blocks: Sequence[tuple[int, int]], *, limit: int, closed: bool) -> list[tuple[int, int]] | None:
    """Return the pieces [start, stop) of `length` tokens, each of at most `limit` and as long as that allows.

    No piece begins or ends inside one of the `blocks` [start, stop), which are in order. Where blocks aren't
    `closed` by a token of their own, a piece that ends with one has room for a token more. None where a block
    is too long for a piece.
    """
    pieces: list[tuple[int, int]] = []
    start = first = 0
    while start < length:
        stop = min(start + limit, length)
        while first < len(blocks) and blocks[first][1] <= start:
            first += 1
        for begin, end in blocks[first:]:
            if begin >= stop:
                break
            # The block is in the way, or fills the piece and lacks the token that closes it.
            if end > stop or (end == stop and not closed and end + 1 - start > limit):
                stop = begin
                break
        if stop == start:
            return None
        pieces.append((start, stop))
        start = stop
    return pieces
