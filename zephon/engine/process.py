"""`engine: process`: planner and assembly in a process of their own, beside the trainer's."""

from __future__ import annotations

import select
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from zephon.backends.failures import assemble, dismantle
from zephon.backends.launch import Child, launch
from zephon.backends.transport import Receiver, Sender
from zephon.collate.host import HostBatch, HostImages
from zephon.engine.engine import Counts
from zephon.engine.interrupts import interrupts_later
from zephon.engine.session import Delivery, ThreadSession
from zephon.engine.setup import Setup, decode_setup, encode_setup, open_backend, open_indices, prefetch
from zephon.errors import StoreError, ZephonError

SLOTS = 3
MIN_SLOT_BYTES = 1 << 20


class Request(msgspec.Struct, frozen=True, array_like=True):
    """What the trainer asks for: the next micro-batch, or the lanes at a position."""

    lanes_at: int | None = None


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """What comes back, in the order of the requests: a batch's header, an end, lanes or an error."""

    kind: str
    sequences: tuple[int, ...] = ()
    start: int = 0
    consumed: int = 0
    counts: Counts = Counts(0, 0, 0, {}, {})
    masked: bool = False
    images: bool = False
    lanes: dict[int, bytes] = {}
    error: tuple[str, str, tuple[str, ...]] = ("", "", ())


class ProcessSession:
    """A session whose engine runs in a child process; its batches come through shared memory."""

    def __init__(self, setup: Setup, finish: Callable[[HostBatch], Any]) -> None:
        config = setup.config
        self._finish = finish
        bytes_a_batch = 4 * config.micro_batch_size * (config.sequence_length + 1) * 2
        self._child: Child = launch(
            "zephon.engine.process:serve",
            encode_setup(setup),
            slots=SLOTS,
            slot_bytes=max(MIN_SLOT_BYTES, bytes_a_batch),
        )
        self._ready = select.poll()
        self._ready.register(self._child.receiver, select.POLLIN)
        # Batches and lanes asked for and not yet come; and those that came while something else was waited for.
        self._asked = self._asked_lanes = 0
        self._came: deque[tuple[Answer, list[Any]]] = deque()
        self._credit = max(1, prefetch(config))
        self._closed = False

    def next(self) -> Delivery | None:
        """Return the next micro-batch; None at a pass's end."""
        while self._asked + len(self._came) < self._credit:
            with interrupts_later():
                self._ask(Request())
                self._asked += 1
        while not self._came:
            self._receive()
        answer, arrays = self._came.popleft()
        if answer.kind == "error":
            self._came.appendleft((answer, arrays))
            raise assemble(*answer.error)
        if answer.kind == "end":
            return None
        host = unpack_batch(answer, arrays)
        return Delivery(self._finish(host), answer.start, answer.consumed, answer.counts)

    def lanes_at(self, consumed: int) -> dict[int, bytes]:
        """Return the rank's encoded lanes at a position still held."""
        with interrupts_later():
            self._ask(Request(consumed))
            self._asked_lanes += 1
        while (answer := self._receive()) is None:
            pass
        if answer.kind == "no lanes":
            raise assemble(*answer.error)
        return answer.lanes

    def close(self) -> None:
        """End the child."""
        self._closed = True
        self._child.close(grace_s=5.0)

    def _ask(self, request: Request) -> None:
        try:
            self._child.sender.send(msgspec.msgpack.encode(request))
        except EOFError as error:
            raise self._gone() from error

    def _receive(self) -> Answer | None:
        """Wait for an answer: a batch's is put into `_came`, that to `lanes_at` is returned."""
        # Ctrl-C strikes here, while nothing has been read, and leaves the session as it is.
        self._ready.poll()
        with interrupts_later():
            try:
                header, arrays = self._child.receiver.receive()
            except EOFError as error:
                raise self._gone() from error
            answer = msgspec.msgpack.decode(header, type=Answer)
            if answer.kind in ("lanes", "no lanes"):
                # Of several, earlier ones were asked for by a call that was interrupted.
                self._asked_lanes -= 1
                return None if self._asked_lanes else answer
            self._asked -= 1
            self._came.append((answer, arrays))
            return None

    def _gone(self) -> StoreError:
        if self._closed:
            return StoreError("the loader is closed; make a new one")
        self._child.wait(1.0)
        return StoreError(f"the engine process ended ({self._child.fate()}); load the last state into a new loader")


def serve(argument: bytes, inbox: Receiver, outbox: Sender) -> None:
    """Answer requests until the trainer hangs up: the child's whole life."""
    try:
        setup = decode_setup(argument)
        # Requests run ahead of what the trainer was given, so that much more must be remembered.
        keep = setup.config.snapshots + max(1, prefetch(setup.config))
        config = msgspec.structs.replace(setup.config, snapshots=keep)
        setup = msgspec.structs.replace(setup, config=config)
        # Before the index, because workers take longest to be ready.
        backend = open_backend(config)
        try:
            session = ThreadSession(setup, open_indices(config), backend, as_it_is)
        except BaseException:
            backend.close()
            raise
    except ZephonError as error:
        while True:
            wanted = msgspec.msgpack.decode(inbox.receive()[0], type=Request)
            kind = "error" if wanted.lanes_at is None else "no lanes"
            outbox.send(msgspec.msgpack.encode(Answer(kind, error=dismantle(error))))
    try:
        while True:
            request = msgspec.msgpack.decode(inbox.receive()[0], type=Request)
            answer, arrays = _answer(session, request)
            outbox.send(msgspec.msgpack.encode(answer), arrays)
    finally:
        session.close()


def as_it_is(host: HostBatch) -> HostBatch:
    """Return a host batch: it is finished in the trainer's process."""
    return host


def _answer(session: ThreadSession, request: Request) -> tuple[Answer, list[Any]]:
    if request.lanes_at is not None:
        try:
            return Answer("lanes", lanes=session.lanes_at(request.lanes_at)), []
        except ZephonError as error:
            return Answer("no lanes", error=dismantle(error)), []
    try:
        delivery = session.next()
    except ZephonError as error:
        return Answer("error", error=dismantle(error)), []
    if delivery is None:
        return Answer("end"), []
    host: HostBatch = delivery.batch
    answer = Answer(
        "batch",
        host.sequences,
        delivery.start,
        delivery.consumed,
        delivery.counts,
        masked=host.mask is not None,
        images=host.images is not None,
    )
    return answer, pack_batch(host)


def pack_batch(host: HostBatch) -> list[Any]:
    """Return a host batch's arrays: tokens, pieces, the mask and the images' table and pixels where there are any."""
    arrays: list[Any] = [host.tokens, host.pieces]
    if host.mask is not None:
        arrays.append(host.mask)
    return arrays if host.images is None else [*arrays, host.images.table, *host.images.pixels]


def unpack_batch(answer: Answer, arrays: list[Any]) -> HostBatch:
    """Return the host batch of an answer."""
    tokens, pieces, *rest = arrays
    mask = rest.pop(0) if answer.masked else None
    images = HostImages(table=rest[0], pixels=tuple(rest[1:])) if answer.images else None
    return HostBatch(tokens=tokens, pieces=pieces, mask=mask, sequences=answer.sequences, images=images)
