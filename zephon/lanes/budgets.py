"""Budgets: what a row may hold beside tokens, decided from declared metadata alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from zephon.config import Pack
from zephon.item import Item, Row, make_span
from zephon.lanes.best_fit import BestFit, long_row

Amounts = Callable[[Item], tuple[int, ...]]


class BudgetedBestFit(BestFit):
    """Best fit whose rows stay within budgets: the longest document that fits tokens and budgets comes next.

    A row still starts with the oldest document, which has a row of its own where it alone is over a budget.
    O(pool) a document where budgets are what binds.
    """

    def __init__(self, pack: Pack, capacity: int, amounts: Amounts) -> None:
        super().__init__(pack, capacity)
        self._budgets = tuple(pack.budgets.values())
        self._amounts = amounts

    def pop(self, *, last: bool) -> Row | None:
        """Return a row once `pool` items wait."""
        pool, capacity, amounts = self._pool, self._capacity, self._amounts
        if not pool or (len(pool) < self._size and not last):
            return None
        # A long document's amounts are the whole document's, so that each piece has a row of its own.
        if (row := long_row(pool, capacity)) is not None:
            return row
        item = pool.take_oldest()
        left = [budget - amount for budget, amount in zip(self._budgets, amounts(item), strict=True)]
        spans = [make_span((item, item.start, item.length, 0))]
        offset = item.length - item.start

        def fits(item: Item) -> bool:
            # A budget that is used up, or overdrawn by the first document, still admits documents without any.
            return all(amount <= max(0, room) for amount, room in zip(amounts(item), left, strict=True))

        while (found := pool.take_longest(capacity - (offset + -offset % self._align), fits)) is not None:
            offset += -offset % self._align
            spans.append(make_span((found, found.start, found.length, offset)))
            offset += found.length - found.start
            left = [room - amount for room, amount in zip(left, amounts(found), strict=True)]
        return Row(tuple(spans))


def amounts_of(names: Sequence[str], metadata: Mapping[str, Sequence[str]]) -> Amounts:
    """Return the function that gives an item's declared amounts by budget; 0 where its source declares none."""
    places = {
        source: tuple(fields.index(name) if name in fields else -1 for name in names)
        for source, fields in metadata.items()
    }

    def amounts(item: Item) -> tuple[int, ...]:
        return tuple(max(0, item.meta[place]) if place >= 0 else 0 for place in places[item.source])

    return amounts
