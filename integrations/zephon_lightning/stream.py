"""What Lightning iterates: a loader whose position is what the trainer processed, not what it fetched.

Words: a micro-batch is *handed* out by `next`, and *processed* when the trainer says that its step is over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from zephon import Batch, Loader, ZephonError


class Handed(NamedTuple):
    """A micro-batch that was handed out, and the position after it."""

    batch: Batch
    end: int


class Stream:
    """A loader's micro-batches; a new iterator begins at the first one that wasn't processed.

    What was handed out and not processed (prefetched at the end of an epoch, or a step that failed) is kept, and
    handed out again, so that nothing is lost and no worker starts anew.
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        # Sequences over all ranks that the trainer has processed.
        self.consumed = loader.consumed
        # Counts the states loaded: iterators of before start anew.
        self.generation = 0
        # Where the trainer's epochs are shorter than a pass, they go on over its end.
        self.rolls = False
        self._handed: deque[Handed] = deque()
        # The number of the first of these, over the stream's life.
        self._first = 0
        self._batches: Iterator[Batch] | None = None
        self._lost: ZephonError | None = None

    def __iter__(self) -> Iterator[Batch]:
        return _Iterator(self)

    @property
    def fetched(self) -> int:
        """Micro-batches handed out and not processed yet."""
        return len(self._handed)

    @property
    def first(self) -> int:
        """The number of the first micro-batch that isn't processed."""
        return self._first

    def processed(self) -> None:
        """Count the oldest micro-batch handed out as processed."""
        if self._handed:
            self.consumed = self._handed.popleft().end
            self._first += 1

    def part(self) -> dict[str, Any]:
        """Return this rank's part of the state after what was processed."""
        if self._lost is not None:
            raise self._lost
        return self.loader.state_dict(consumed=self.consumed)

    def part_or_error(self) -> dict[str, Any] | ZephonError:
        """Return this rank's part, or why there is none, for all ranks to raise."""
        try:
            return self.part()
        except ZephonError as error:
            return error

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; what was handed out before is forgotten."""
        self.loader.load_state_dict(state)
        self.follow()

    def rest(self) -> None:
        """Leave no thread, process or shared memory; the next `hand` goes on after what was processed.

        Where the loader can't say its state any more (its engine died), it is closed; `part` then tells why.
        """
        if self._batches is None and not self._handed and not self._first:
            # Nothing was taken, so nothing runs.
            return
        try:
            self.load(self.part())
        except ZephonError as error:
            self._lost = error
            self.loader.close()

    def follow(self) -> None:
        """Go on where the loader is, which has loaded a state."""
        self._first += len(self._handed)
        self._handed.clear()
        self._batches = None
        self.consumed = self.loader.consumed
        self.generation += 1

    def hand(self, number: int) -> Batch | None:
        """Return micro-batch `number`, which was handed out before or comes next; None at a pass's end."""
        if number - self._first < len(self._handed):
            return self._handed[number - self._first].batch
        if self._batches is None:
            self._batches = iter(self.loader)
        batch = next(self._batches, None)
        if batch is None:
            self._batches = None
            return None
        self._handed.append(Handed(batch, self.loader.consumed))
        return batch


class FiniteStream(Stream):
    """A stream with an end: `len` is its micro-batches a pass."""

    def __len__(self) -> int:
        return len(self.loader)


class FixedStream:
    """A finite loader for validation: each iterator gives the same rows, from the pass's beginning."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self._start: dict[str, Any] | None = None

    def __len__(self) -> int:
        return len(self.loader)

    def rest(self) -> None:
        """Leave no thread, process or shared memory; the next iterator begins at the pass's beginning, as each does."""
        if self._start is not None:
            self.loader.load_state_dict(self._start)

    def __iter__(self) -> Iterator[Batch]:
        # A generator: nothing happens before the first `next`.
        if self._start is None:
            self._start = self.loader.state_dict()
        length = self.loader.plan["length"]
        if self.loader.consumed % length:
            # The pass before this one was left early.
            self.loader.load_state_dict(self._start)
        given = False
        for batch in self.loader:
            given = True
            yield batch
        if not given:
            # The pass before this one ended exactly here, and its end hadn't been asked for.
            yield from self.loader


class _Iterator:
    """An iterator over a stream that notices states loaded meanwhile; it has no effect before its first `next`."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._generation = -1
        self._number = 0
        self._ended = False
        self._given = False

    def __iter__(self) -> _Iterator:
        return self

    def __next__(self) -> Batch:
        stream = self._stream
        if self._generation != stream.generation:
            self._generation, self._number, self._ended = stream.generation, stream.first, False
            self._given = False
        batch = None if self._ended else stream.hand(self._number)
        if batch is None and not self._ended and (stream.rolls or not self._given):
            # A trainer that counts never asks for a pass's end: it comes first thing in the next epoch.
            batch = stream.hand(self._number)
        if batch is None:
            self._ended = True
            raise StopIteration
        self._number += 1
        self._given = True
        return batch
