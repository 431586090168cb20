"""The oracle's operators and packers: which pieces make a lane's next row."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from oracle_plan import Item, Piece, Plan, draw, key


class Shuffle:
    def __init__(self, plan: Plan, position: int, lane: int, buffer: int) -> None:
        self.key = key(plan.seed, "shuffle", position, lane)
        self.buffer, self.items, self.count = buffer, [], 0

    def push(self, item: Item) -> None:
        self.items.append(item)

    def pop(self, last: bool) -> Item | None:
        if not self.items or (len(self.items) < self.buffer and not last):
            return None
        at = draw(self.key, self.count) % len(self.items)
        self.count += 1
        out, end = self.items[at], self.items.pop()
        if at < len(self.items):
            self.items[at] = end
        return out


@dataclass
class Packer:
    """The waiting list, oldest first, of one packer (one group of it) and the five ways to make a row."""

    plan: Plan
    waiting: list[Item] = field(default_factory=list)
    shared: bool = False  # concat: the first waiting item's next token was delivered already

    def push(self, item: Item) -> None:
        self.waiting.append(item)

    def has_undelivered(self) -> bool:
        return sum(item.remaining for item in self.waiting) > (1 if self.shared else 0)

    def pop(self, last: bool) -> list[Piece] | None:
        if not self.has_undelivered():
            return None
        if self.plan.kind == "concat":
            return self.concat(last)
        if self.plan.kind != "pad" and not last and len(self.waiting) < self.plan.pool:
            return None
        pieces: list[Piece] = []
        self.place(pieces, self.waiting[0], self.plan.capacity)
        if self.plan.kind == "first_fit":
            for item in list(self.waiting):
                if item.remaining <= self.room(pieces):
                    self.place(pieces, item, item.remaining)
        if self.plan.kind in ("best_fit", "best_fit_split"):
            while fitting := [item for item in self.waiting if self.fits(item, pieces)]:
                longest = max(item.remaining for item in fitting)
                oldest = next(item for item in fitting if item.remaining == longest)
                self.place(pieces, oldest, longest)
        if self.plan.kind == "best_fit_split" and self.room(pieces) >= 2 and self.waiting:
            self.place(pieces, self.waiting[0], self.room(pieces))
        return pieces

    def fits(self, item: Item, pieces: list[Piece]) -> bool:
        if item.remaining > self.room(pieces):
            return False
        for name, budget in self.plan.budgets:
            held = sum(dict(piece.item.doc.amounts).get(name, 0) for piece in pieces)
            if dict(item.doc.amounts).get(name, 0) > max(0, budget - held):
                return False
        return True

    def room(self, pieces: list[Piece]) -> int:
        return self.plan.capacity - self.next_offset(pieces)

    def next_offset(self, pieces: list[Piece]) -> int:
        if not pieces:
            return 0
        end = pieces[-1].offset + pieces[-1].stop - pieces[-1].start
        return -(-end // self.plan.align) * self.plan.align

    def place(self, pieces: list[Piece], item: Item, most: int) -> None:
        """Place at most `most` tokens of a waiting item; what is left keeps its place in the list."""
        count = min(most, item.remaining)
        pieces.append(Piece(replace(item), item.start, item.start + count, self.next_offset(pieces)))
        item.start += count
        if not item.remaining:
            self.waiting = [other for other in self.waiting if other is not item]

    def concat(self, last: bool) -> list[Piece] | None:
        before = [replace(item) for item in self.waiting]
        pieces: list[Piece] = []
        while self.waiting and self.room(pieces) > 0:
            item = self.waiting[0]
            self.place(pieces, item, self.room(pieces))
        # A row is complete where nothing more can be placed, and full where a token sits at C - 1.
        if self.room(pieces) > 0 and not last:
            self.waiting = before
            return None
        end = pieces[-1].offset + pieces[-1].stop - pieces[-1].start
        self.shared = end == self.plan.capacity
        if self.shared:
            if item.remaining:
                item.start -= 1
            else:
                self.waiting.insert(0, replace(item, start=item.start - 1))
        return pieces


class Packing:
    """A packer of the plan's kind for each group; one group where nothing is homogeneous."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.groups: dict[str | int, Packer] = {}
        self.pushes = 0
        self.rows = 0

    def group_of(self, item: Item) -> str | int:
        rule = self.plan.homogeneous
        if isinstance(rule, dict):
            return next(group for group, names in rule.items() if item.source in names)
        return {"none": "", "source": item.source, "group": item.doc.group}[rule]

    def push(self, item: Item) -> None:
        group = self.group_of(item)
        self.groups.setdefault(group, Packer(self.plan)).push(replace(item, pushed=self.pushes, born=self.rows))
        self.pushes += 1

    def pop(self, last: bool) -> list[Piece] | None:
        row = self.choose(last)
        if row is not None:
            self.rows += 1
        return row

    def choose(self, last: bool) -> list[Piece] | None:
        if self.plan.homogeneous == "none":
            return self.groups.setdefault("", Packer(self.plan)).pop(last)
        # A group that holds nothing but concat's shared token has nothing to give: it doesn't wait.
        waiting = [packer for packer in self.groups.values() if packer.has_undelivered()]
        waiting.sort(key=lambda packer: packer.waiting[0].pushed)
        if not waiting:
            return None
        max_age = self.plan.max_age if self.plan.max_age is not None else 4 * self.plan.pool
        aged = max(waiting, key=lambda packer: self.rows - packer.waiting[0].born)  # the first of equals
        if self.rows - aged.waiting[0].born >= max_age:
            return aged.pop(last=True)
        if last:
            return waiting[0].pop(last=True)
        for packer in waiting:
            row = packer.pop(last=False)
            if row is not None:
                return row
        return None
