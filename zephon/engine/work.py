"""How much work a row is: what its documents declare, for who reports whether rows carry like amounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zephon.item import Row
from zephon.lanes.budgets import amounts_of

NAMES = ("images", "patches", "cost")


class WorkOf:
    """Sums up what the documents of a row declare; `declared`: whether any source declares any of it."""

    def __init__(self, metadata: Mapping[str, Sequence[str]]) -> None:
        self.declared = any(name in fields for fields in metadata.values() for name in NAMES)
        self._amounts = amounts_of(NAMES, metadata)

    def of(self, row: Row) -> tuple[int, int, int, int]:
        """Return a row's tokens, images, patches and cost; a document in several rows counts where it begins."""
        tokens = images = patches = cost = 0
        for item, start, stop, _ in row.spans:
            tokens += stop - start
            if not start:
                own = self._amounts(item)
                images += own[0]
                patches += own[1]
                cost += own[2]
        return tokens, images, patches, cost
