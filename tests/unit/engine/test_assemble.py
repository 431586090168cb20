"""Rows as packers plan them: what no row can be is refused, whoever planned it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from zephon.engine.assemble import Assembler, write_row
from zephon.errors import DataError
from zephon.item import Item, Payload, Row, Span


def item(length: int = 6) -> Item:
    return Item("web", 0, 0, 0, 0, length, (), 0, Payload(np.arange(1, length + 1, dtype=np.int32)))


def test_a_row_is_written_with_its_padding() -> None:
    out, delivered = np.zeros(10, np.int32), Counter[str]()
    row = Row((Span(item(), 0, 2, 1), Span(item(), 3, 6, 4)))
    layout, tokens, documents, masked = write_row(row, out, 9, delivered)
    assert out.tolist() == [9, 1, 2, 9, 4, 5, 6, 9, 9, 9]
    assert np.frombuffer(layout, np.int32).tolist() == [1, 2, 4, 3]
    assert (tokens, documents, masked, dict(delivered)) == (5, 1, False, {"web": 5})


@pytest.mark.parametrize(
    "spans",
    [
        [(0, 6, 5)],
        [(0, 6, -1)],
        [(0, 4, 0), (0, 2, 3)],
        [(0, 2, 6), (0, 2, 0)],
        [(3, 3, 0)],
        [(4, 3, 0)],
        [(-1, 3, 0)],
        [(0, 7, 0)],
        [(0, 2, 1 << 40)],
    ],
    ids=str,
)
def test_pieces_that_don_t_lie_as_a_row_s_must_are_refused(spans: list[tuple[int, int, int]]) -> None:
    row = Row(tuple(Span(item(), *span) for span in spans))
    assembler = Assembler(1, 10, 0)
    with pytest.raises(DataError, match=r"^the packer put tokens .* inside of their document and row$"):
        assembler.add(0, row)
