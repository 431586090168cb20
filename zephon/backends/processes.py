"""Processes: for stages that hold the interpreter lock; pages come back through shared memory.

There is no thread here: whoever submits or takes also moves messages. A worker has a few orders, one to work at and
some to go on with until then; few, so that its death costs little and all of them stay near plan order.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec
from numpy.typing import NDArray

from zephon.backends.arena import Arena, Piece, bytes_of
from zephon.backends.cargo import pack_callable
from zephon.backends.crew import Crew, Worker, finish
from zephon.backends.failures import CLOSED
from zephon.backends.protocol import Build
from zephon.backends.transport import SLOT_BYTES, SLOTS
from zephon.backends.worker import (
    Assignment,
    Failed,
    Made,
    Placed,
    Ready,
    Task,
    decode_reply,
    encode,
    unpack_error,
    unpack_page,
)
from zephon.errors import DataError, StoreError, ZephonError
from zephon.page import Order, Page, page_of_pixels

# Orders that a worker has: more where a page takes no longer than QUICK_S, so that it isn't idle until it is asked for.
DEPTH, QUICK_DEPTH, QUICK_S = 2, 4, 0.02
MAX_DEATHS = 3
# Of pixels, at most, that workers hand over without a copy; further ones go as other pages do.
ARENA_BYTES = 512 << 20


class Waiting(msgspec.Struct):
    """An order without an answer, and how many workers died at it."""

    order: Order
    deaths: int = 0


class ProcessesBackend:
    """Runs orders in `workers` processes; dead ones are replaced and their orders submitted again.

    Each worker has a ring of `slots` x `slot_bytes` of shared memory; larger pages go in pieces. All have one arena of
    `arena_bytes`, where they leave pixels.
    """

    def __init__(
        self,
        build: Build,
        *,
        workers: int,
        slots: int = SLOTS,
        slot_bytes: int = SLOT_BYTES,
        arena_bytes: int = ARENA_BYTES,
    ) -> None:
        packed = pack_callable(build, place="backend.kind=processes")
        self._arena = Arena(arena_bytes)
        # Pieces that a worker may write to: of orders that it has, dropped ones too.
        self._pieces: dict[int, Piece] = {}
        descriptor = self._arena.descriptor
        inherited = () if descriptor is None else (descriptor,)
        argument = encode(Assignment(packed, None if descriptor is None else (descriptor, arena_bytes)))
        try:
            self._crew = Crew(argument, num_workers=workers, slots=slots, slot_bytes=slot_bytes, inherited=inherited)
        except BaseException:
            self._arena.close()
            raise
        self._finalizer = weakref.finalize(self, _finish, self._crew, self._arena)
        self._waiting: dict[int, Waiting] = {}
        self._queue: deque[int] = deque()
        self._done: dict[int, Page | ZephonError] = {}
        self._tickets = 0
        # What a page took lately.
        self._page_s = 0.0
        self._failed_starts = 0
        self._broken: ZephonError | None = None
        self._torn = False

    def submit(self, order: Order) -> int:
        """Queue an order and return its ticket."""
        with self._crew.lock:
            self._check_open()
            self._tickets += 1
            self._waiting[self._tickets] = Waiting(order)
            self._queue.append(self._tickets)
            # Before any order is given out: who has answered meanwhile has less to do.
            self._pump(0.0)
            return self._tickets

    def take(self, ticket: int) -> Page:
        """Return a ticket's page, waiting for it; raises what making it raised.

        A worker that dies is replaced. Raises DataError where three died at this order, StoreError where
        three died at their start.
        """
        with self._crew.lock:
            self._check_open()
            if ticket not in self._waiting and ticket not in self._done:
                raise LookupError(f"ticket {ticket} is not outstanding: taken, dropped or never given")
            if ticket in self._queue:
                # Somebody waits for it: before what is only ordered ahead.
                self._queue.remove(ticket)
                self._queue.appendleft(ticket)
            while ticket not in self._done:
                if self._broken is not None:
                    raise self._broken
                self._pump(None)
                self._check_open()
            result = self._done.pop(ticket)
        if isinstance(result, ZephonError):
            raise result
        return result

    def drop(self, ticket: int) -> None:
        """Give a ticket up; an order that no worker has is never run."""
        with self._crew.lock:
            self._waiting.pop(ticket, None)
            self._done.pop(ticket, None)

    def close(self) -> None:
        """Wake a `take` that waits, and end the workers; those that don't end within a second are killed."""
        self._finalizer.detach()
        _finish(self._crew, self._arena)
        self._waiting.clear()
        self._queue.clear()
        self._done.clear()

    def _check_open(self) -> None:
        if self._crew.closed:
            raise StoreError(CLOSED)

    def _pump(self, timeout_s: float | None) -> None:
        """Take in what workers have to say, and give out orders."""
        if self._torn:
            self._start_over()
        ready = self._crew.ready(timeout_s)
        # Stays set where an interrupt (Ctrl-C in a notebook) strikes from here on; while waiting it does no harm.
        self._torn = True
        for worker in ready:
            try:
                header, arrays = worker.child.receiver.receive()
                self._settle(worker, header, arrays)
            except EOFError:
                self._bury(worker)
        self._dispatch()
        self._torn = False

    def _start_over(self) -> None:
        """Give all orders without an answer to fresh workers: who has which is unsure after an interrupt."""
        self._crew.restart()
        self._release(tuple(self._pieces))
        self._queue.clear()
        self._queue.extend(ticket for ticket in sorted(self._waiting) if ticket not in self._done)

    def _dispatch(self) -> None:
        """Give queued orders to the workers that have least to do."""
        while self._queue and self._broken is None and not self._crew.closed:
            ticket = self._queue[0]
            waiting = self._waiting.get(ticket)
            if waiting is None:
                self._queue.popleft()
                continue
            worker = min(self._crew.workers, key=_load)
            if len(worker.tickets) >= (QUICK_DEPTH if self._page_s < QUICK_S else DEPTH):
                return
            self._queue.popleft()
            worker.tickets.append(ticket)
            piece = self._arena.take(bytes_of(waiting.order.wanted)) if waiting.order.wanted else None
            if piece is not None:
                self._pieces[ticket] = piece
            try:
                worker.child.sender.send(encode(Task(ticket, waiting.order, piece)))
            except EOFError:
                # Dead; its receiver says so too, and then its orders are submitted again.
                return

    def _settle(self, worker: Worker, header: bytes, arrays: list[NDArray[Any]]) -> None:
        reply = decode_reply(header)
        if isinstance(reply, Ready):
            worker.ready = True
            self._failed_starts = 0
        elif reply.ticket is None:
            self._broken = unpack_error(reply)
        else:
            result = unpack_error(reply) if isinstance(reply, Failed) else self._page(reply, arrays)
            if isinstance(result, Page):
                self._page_s = (self._page_s + result.seconds) / 2
            # Unless the page holds it.
            self._release([reply.ticket])
            self._answer(worker, reply.ticket, result)

    def _page(self, reply: Made | Placed, arrays: list[NDArray[Any]]) -> Page | None:
        """Return the page of a reply; None for pixels that nobody waits for."""
        if isinstance(reply, Made):
            return unpack_page(reply, arrays)
        waiting = self._waiting.get(reply.ticket)
        if waiting is None:
            return None
        pixels = self._arena.views(self._pieces.pop(reply.ticket), waiting.order.wanted)
        return page_of_pixels(pixels, bad=reply.bad, block_hash=reply.block_hash, seconds=reply.seconds)

    def _release(self, tickets: Iterable[int]) -> None:
        """Give back the pieces of orders that no worker has any more."""
        for ticket in tickets:
            piece = self._pieces.pop(ticket, None)
            if piece is not None:
                self._arena.give_back(piece)

    def _answer(self, worker: Worker, ticket: int, result: Page | ZephonError | None) -> None:
        # In this order: an interrupt in between loses nothing, and `_start_over` passes it over.
        if ticket in self._waiting and result is not None:
            self._done[ticket] = result
            del self._waiting[ticket]
        worker.tickets.remove(ticket)

    def _bury(self, worker: Worker) -> None:
        """Replace a dead worker, and put its orders back at the queue's head."""
        if self._crew.closed:
            return
        tickets = list(worker.tickets)
        worker.tickets.clear()
        # Dropped ones among them are passed over when their turn comes.
        self._queue.extendleft(reversed(tickets))
        try:
            fate = self._crew.replace(worker)
        except ZephonError as error:
            self._broken = error
            return
        finally:
            # Now that it is gone.
            self._release(tickets)
        if not worker.ready:
            self._failed_starts += 1
            if self._failed_starts >= MAX_DEATHS and self._broken is None:
                self._broken = StoreError(
                    f"{self._failed_starts} worker processes died at their start, the last: {fate}; see what they "
                    f"printed (out of memory? no `if __name__ == '__main__'` guard?), or use backend.kind=threads"
                )
        elif tickets and tickets[0] in self._waiting:
            self._blame(tickets[0], fate)

    def _blame(self, ticket: int, fate: str) -> None:
        """Count a death against the order that the worker was at, and give that up after three."""
        waiting = self._waiting[ticket]
        waiting.deaths += 1
        if waiting.deaths < MAX_DEATHS:
            return
        order = waiting.order
        self._done[ticket] = DataError(
            f"source {order.source}, block {order.block} of {order.location.path} (samples from "
            f"{order.location.first}): {waiting.deaths} worker processes died at it, the last: {fate}; "
            f"give workers more memory or mend the shard"
        )
        del self._waiting[ticket]


def _finish(crew: Crew, arena: Arena) -> None:
    finish(crew)
    arena.close()


def _load(worker: Worker) -> tuple[int, int]:
    # Among equals, not the one that is longest at an order: it may be at that for long.
    return len(worker.tickets), -worker.tickets[0] if worker.tickets else 0
