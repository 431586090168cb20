"""Messages between processes: a small header by socket, NumPy arrays through a ring of shared memory.

A *channel* goes one way. Its ring has a few slots of equal size. The sender fills a slot and says so
in a few bytes on the socket; the receiver copies the slot out and gives it back with one byte. A message
larger than a slot goes in pieces, so a ring's size limits no message. A side that dies or closes is
noticed by the other as the end of the socket: EOFError, never a wait without end.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from zephon.backends.shared_memory import attach, reserve

SLOTS = 4
SLOT_BYTES = 2 << 20
SOCKET_BYTES = 1 << 18
CLOSE_S = 1.0

_LENGTH = struct.Struct("<I")
_MORE = _LENGTH.pack(0)
_GONE = "the other side of the channel is gone"


class Frame(msgspec.Struct, array_like=True, frozen=True):
    """What the socket carries of a message: its header, and dtype and shape of its arrays."""

    header: bytes
    arrays: tuple[tuple[str, tuple[int, ...]], ...]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Frame).decode


class Sender:
    """The end of a channel that sends; safe to close from any thread."""

    def __init__(self, connection: socket.socket, ring: NDArray[np.uint8], *, slots: int) -> None:
        self._connection = connection
        self._ring = ring
        self._slots = slots
        self._slot_bytes = ring.size // slots
        self._sent = 0
        self._free = slots
        self._busy = threading.Lock()

    def send(self, header: bytes, arrays: Sequence[NDArray[Any]] = ()) -> None:
        """Send a message; waits while the ring is full.

        Arrays of any shape and any dtype without objects or fields. A message without array bytes takes
        no slot, and waits only if the socket is full (about 256 KiB). Raises EOFError where the other
        side is gone or this one closed.
        """
        for array in arrays:
            if array.dtype.hasobject or array.dtype.fields:
                raise TypeError(f"arrays of dtype {array.dtype} can't be sent")
        frame = _encode(Frame(header, tuple((array.dtype.str, array.shape) for array in arrays)))
        note = _LENGTH.pack(len(frame)) + frame
        parts = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
        with self._busy:
            try:
                for group in _cut(parts, self._slot_bytes):
                    position = self._slot()
                    for part in group:
                        self._ring[position : position + part.size] = part
                        position += part.size
                    self._connection.sendall(note)
                    note = _MORE
                if note is not _MORE:
                    self._connection.sendall(note)
            except OSError as error:
                raise EOFError(_GONE) from error
            except BaseException:
                # Interrupted half-way: the stream would be out of step from here on.
                _hang_up(self._connection)
                raise

    def close(self) -> None:
        """Close this end: wakes a `send` that waits and the other side; may be called again."""
        _hang_up(self._connection)
        # Whoever is in there has been woken. Not without end: an interrupt may have left it locked for good.
        held = self._busy.acquire(timeout=CLOSE_S)
        self._connection.close()
        self._ring = self._ring[:0].copy()
        if held:
            self._busy.release()

    def _slot(self) -> int:
        """Return where the next free slot begins, waiting until the receiver has emptied it."""
        if not self._free:
            given_back = len(self._connection.recv(self._slots))
            if not given_back:
                raise EOFError(_GONE)
            self._free += given_back
        self._free -= 1
        self._sent += 1
        return (self._sent - 1) % self._slots * self._slot_bytes


class Receiver:
    """The end of a channel that receives; safe to close from any thread, and to wait for by `fileno`."""

    def __init__(self, connection: socket.socket, ring: NDArray[np.uint8], *, slots: int) -> None:
        self._connection = connection
        self._ring = ring
        self._slots = slots
        self._slot_bytes = ring.size // slots
        self._received = 0
        self._busy = threading.Lock()

    def receive(self) -> tuple[bytes, list[NDArray[Any]]]:
        """Return the next message's header and arrays, waiting for it; the arrays are the caller's own.

        Raises EOFError where the other side is gone (after its last whole message) or this one closed.
        """
        with self._busy:
            try:
                frame = _decode(self._read(*_LENGTH.unpack(self._read(_LENGTH.size))))
                arrays: list[NDArray[Any]] = [np.empty(shape, dtype) for dtype, shape in frame.arrays]
                parts = [array.reshape(-1).view(np.uint8) for array in arrays]
                for number, group in enumerate(_cut(parts, self._slot_bytes)):
                    if number:
                        self._read(_LENGTH.size)
                    position = self._received % self._slots * self._slot_bytes
                    for part in group:
                        part[:] = self._ring[position : position + part.size]
                        position += part.size
                    self._received += 1
                    self._give_back()
            except OSError as error:
                raise EOFError(_GONE) from error
            except BaseException:
                # Interrupted half-way: the stream would be out of step from here on.
                _hang_up(self._connection)
                raise
        return frame.header, arrays

    def fileno(self) -> int:
        """Return a descriptor that is readable when `receive` has something to return or to raise."""
        return self._connection.fileno()

    def hang_up(self) -> None:
        """End the channel for both sides without waiting for a `receive` in another thread, which is woken."""
        _hang_up(self._connection)

    def close(self) -> None:
        """Close this end: wakes a `receive` that waits and the other side; may be called again."""
        _hang_up(self._connection)
        # Whoever is in there has been woken. Not without end: an interrupt may have left it locked for good.
        held = self._busy.acquire(timeout=CLOSE_S)
        self._connection.close()
        self._ring = self._ring[:0].copy()
        if held:
            self._busy.release()

    def _give_back(self) -> None:
        try:
            self._connection.sendall(b"\0")
        except OSError:
            # The sender died after its last word; that message is whole all the same.
            return

    def _read(self, num_bytes: int) -> bytes:
        data = self._connection.recv(num_bytes, socket.MSG_WAITALL)
        while len(data) < num_bytes:
            more = self._connection.recv(num_bytes - len(data), socket.MSG_WAITALL)
            if not more:
                raise EOFError(_GONE)
            data += more
        return data


def channel(*, slots: int = SLOTS, slot_bytes: int = SLOT_BYTES) -> tuple[Sender, Receiver]:
    """Return the two ends of a channel within this process; `launch` makes those between two."""
    descriptor = reserve(slots * slot_bytes)
    try:
        ring = attach(descriptor, slots * slot_bytes)
    finally:
        os.close(descriptor)
    ours, theirs = pair()
    return Sender(ours, ring, slots=slots), Receiver(theirs, ring, slots=slots)


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets with room for about 256 KiB."""
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, option, SOCKET_BYTES)
    return ours, theirs


def _cut(parts: Sequence[NDArray[np.uint8]], slot_bytes: int) -> Iterator[list[NDArray[np.uint8]]]:
    """Cut byte views into groups of `slot_bytes` (the last has the rest): what goes into one slot each."""
    group: list[NDArray[np.uint8]] = []
    room = slot_bytes
    for whole in parts:
        part = whole
        while part.size:
            group.append(part[:room])
            taken = min(part.size, room)
            part = part[taken:]
            room -= taken
            if not room:
                yield group
                group, room = [], slot_bytes
    if group:
        yield group


def _hang_up(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        # Already closed here or there: just what was wanted.
        return
