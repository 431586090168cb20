"""`homogeneous`: rows that hold documents of one group only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zephon.item import Item, Row
from zephon.lanes.protocol import OperatorState, Packer

Reference = tuple[str, int, int, int]


class Grouped:
    """A packer of one kind for each group, and a clock of rows that lets no group wait for ever."""

    def __init__(self, make: Callable[[], Packer], group_of: Callable[[Item], str], max_age: int) -> None:
        self._make = make
        self._group_of = group_of
        self._max_age = max_age
        self._rows = 0
        self._arrivals = 0
        self._packers: dict[str, Packer] = {}
        # (arrival, rows made before it) of each waiting item, by reference.
        self._pushed: dict[Reference, tuple[int, int]] = {}

    def push(self, item: Item) -> None:
        """Add an item to its group."""
        self._place(item, self._rows)

    def pop(self, *, last: bool) -> Row | None:
        """Return a row of the group that waited too long, else of the first group that has one."""
        groups = sorted((self._oldest(packer), name) for name, packer in self._packers.items() if packer.held())
        if not groups:
            return None
        # A document must not wait for ever in a group that nothing else joins.
        for (_, rows), name in sorted(groups, key=lambda group: (group[0][1], group[0][0])):
            row = self._packers[name].pop(last=True) if self._rows - rows >= self._max_age else None
            if row is not None:
                return self._emit(row)
        for _, name in groups:
            row = self._packers[name].pop(last=False)
            if row is not None:
                return self._emit(row)
        if last:
            for _, name in groups:
                row = self._packers[name].pop(last=True)
                if row is not None:
                    return self._emit(row)
        return None

    def held(self) -> tuple[Item, ...]:
        """Return the waiting items in the order in which they came."""
        items = [item for name in sorted(self._packers) for item in self._packers[name].held()]
        return tuple(sorted(items, key=lambda item: self._pushed[_reference(item)][0]))

    def state(self) -> OperatorState:
        """Return the clock, each held item's age in rows, and the groups' own numbers."""
        ages = tuple(self._rows - self._pushed[_reference(item)][1] for item in self.held())
        state: dict[str, int | tuple[int, ...]] = {"rows": self._rows, "ages": ages}
        for name in sorted(self._packers):
            state.update({f"{name}/{field}": value for field, value in self._packers[name].state().items()})
        return state

    def restore(self, state: OperatorState, held: Sequence[Item]) -> None:
        """Take up groups."""
        rows, ages = state.get("rows", 0), state.get("ages", ())
        self._rows = rows if isinstance(rows, int) else 0
        self._arrivals, self._packers, self._pushed = 0, {}, {}
        ages = ages if isinstance(ages, tuple) else ()
        for item, age in zip(held, ages, strict=True):
            self._place(item, self._rows - age)
        own: dict[str, dict[str, int | tuple[int, ...]]] = {}
        for field, value in state.items():
            name, slash, rest = field.rpartition("/")
            if slash:
                own.setdefault(name, {})[rest] = value
        for name, numbers in own.items():
            packer = self._packers.setdefault(name, self._make())
            packer.restore(numbers, packer.held())

    def _place(self, item: Item, rows: int) -> None:
        name = self._group_of(item)
        if name not in self._packers:
            self._packers[name] = self._make()
        self._packers[name].push(item)
        self._pushed[_reference(item)] = (self._arrivals, rows)
        self._arrivals += 1

    def _oldest(self, packer: Packer) -> tuple[int, int]:
        return min(self._pushed[_reference(item)] for item in packer.held())

    def _emit(self, row: Row) -> Row:
        self._rows += 1
        # A group that holds nothing is as if it had never been: groups that come and go leave no trace in a state.
        self._packers = {name: packer for name, packer in self._packers.items() if packer.held()}
        held = {_reference(item) for packer in self._packers.values() for item in packer.held()}
        for span in row.spans:
            reference = _reference(span.item)
            if reference not in held:
                self._pushed.pop(reference, None)
        return row


def _reference(item: Item) -> Reference:
    return (item.source, item.q, item.sample, item.part)
