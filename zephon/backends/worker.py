"""What a worker process does: take orders, answer with pages or with what went wrong."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from zephon.backends.arena import arrays_in
from zephon.backends.cargo import unpack_callable
from zephon.backends.failures import assemble, dismantle, failed_build, failed_order
from zephon.backends.shared_memory import attach
from zephon.backends.transport import Receiver, Sender
from zephon.errors import ZephonError
from zephon.page import Order, Page


class Assignment(msgspec.Struct, array_like=True, frozen=True):
    """What a worker is started with: its packed stages, and the descriptor and size of the arena, None without one."""

    build: bytes
    arena: tuple[int, int] | None


class Task(msgspec.Struct, array_like=True, frozen=True):
    """An order and its ticket; `piece` of the arena is for the pixels, None where they come as arrays."""

    ticket: int
    order: Order
    piece: tuple[int, int] | None = None


class Ready(msgspec.Struct, array_like=True, frozen=True, tag=0):
    """The worker has built its stages."""


class Made(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """A page: its arrays travel beside this, in the order tokens, offsets, counts, mask, meta, attachments, pixels.

    `pixels` is the number of arrays that were decoded, -1 where the page holds documents.
    """

    ticket: int
    mask: bool
    meta: bool
    bad: tuple[tuple[int, str], ...]
    block_hash: int
    seconds: float
    attachments: bool = False
    pixels: int = -1


class Placed(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """A page of pixels alone, which lie in the order's piece of the arena."""

    ticket: int
    bad: tuple[tuple[int, str], ...]
    block_hash: int
    seconds: float


class Failed(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """An order's error, or with ticket None, the error of building the stages."""

    ticket: int | None
    kind: str
    text: str
    notes: tuple[str, ...]


encode = msgspec.msgpack.Encoder().encode
decode_assignment = msgspec.msgpack.Decoder(Assignment).decode
decode_task = msgspec.msgpack.Decoder(Task).decode
decode_reply = msgspec.msgpack.Decoder(Ready | Made | Placed | Failed).decode


def work(argument: bytes, orders: Receiver, pages: Sender) -> None:
    """Build the stages that an Assignment packs, and answer orders until the parent hangs up."""
    assignment = decode_assignment(argument)
    arena = None if assignment.arena is None else _inherit(*assignment.arena)
    try:
        prepare = unpack_callable(assignment.build)()
    except Exception as error:  # noqa: BLE001 - raised by `take` in the parent
        pages.send(encode(Failed(None, *dismantle(failed_build(error)))))
        return
    pages.send(encode(Ready()))
    while True:
        header, _ = orders.receive()
        task = decode_task(header)
        try:
            page: Page = prepare(task.order)
            reply, arrays = pack_page(task.ticket, page) if task.piece is None else _place(page, task, arena)
        except Exception as error:  # noqa: BLE001 - raised by `take` in the parent
            pages.send(encode(Failed(task.ticket, *dismantle(failed_order(error, task.order)))))
            continue
        pages.send(reply, arrays)
        # Else the page lives until the next order comes.
        del page, reply, arrays


def _inherit(descriptor: int, num_bytes: int) -> NDArray[np.uint8] | None:
    """Return the arena, None where there is no room for it (ulimit -v).

    Its descriptor is closed: else a process that a stage starts would have it too.
    """
    try:
        return attach(descriptor, num_bytes)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _place(page: Page, task: Task, arena: NDArray[np.uint8] | None) -> tuple[bytes, list[NDArray[Any]]]:
    """Write a page's pixels to the task's piece of the arena, and return what is left to say."""
    if arena is None or task.piece is None or page.pixels is None:
        return pack_page(task.ticket, page)
    there = arrays_in(arena[slice(*task.piece)], task.order.wanted)
    for array, pixels in zip(there, page.pixels, strict=True):
        array[:] = pixels
    return encode(Placed(task.ticket, page.bad, page.block_hash, page.seconds)), []


def pack_page(ticket: int, page: Page) -> tuple[bytes, list[NDArray[Any]]]:
    """Return a page as a message."""
    arrays: list[NDArray[Any]] = [page.tokens, page.offsets, page.counts]
    arrays += [array for array in (page.mask, page.meta, page.attachments) if array is not None]
    made = Made(
        ticket,
        page.mask is not None,
        page.meta is not None,
        page.bad,
        page.block_hash,
        page.seconds,
        page.attachments is not None,
        -1 if page.pixels is None else len(page.pixels),
    )
    return encode(made), [*arrays, *(page.pixels or ())]


def unpack_page(made: Made, arrays: list[NDArray[Any]]) -> Page:
    """Return the page of a message."""
    tokens, offsets, counts, *rest = arrays
    mask: NDArray[np.uint8] | None = rest.pop(0) if made.mask else None
    meta: NDArray[np.int64] | None = rest.pop(0) if made.meta else None
    attachments: NDArray[np.int64] | None = rest.pop(0) if made.attachments else None
    pixels = None if made.pixels < 0 else tuple(rest)
    return Page(tokens, offsets, counts, mask, meta, made.bad, made.block_hash, made.seconds, attachments, pixels)


def unpack_error(failed: Failed) -> ZephonError:
    """Return the error of a message."""
    return assemble(failed.kind, failed.text, failed.notes)
