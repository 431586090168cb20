"""The other side of `launch`: what a child does before and after its function."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
from importlib import import_module

import msgspec

from zephon.backends.shared_memory import attach
from zephon.backends.transport import Receiver, Sender

LOOK_S = 0.5


class Spec(msgspec.Struct, frozen=True):
    """What a child is told on its command line; descriptors are numbers of inherited ones."""

    target: str
    parent: int
    argument: tuple[int, int]
    inbox: tuple[int, int, int, int]
    outbox: tuple[int, int, int, int]


def main(encoded: str) -> None:
    """Run the target of an encoded Spec and end the process without the interpreter's slow farewell."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spec = msgspec.json.decode(encoded, type=Spec)
    inbox, outbox = socket.socket(fileno=spec.inbox[0]), socket.socket(fileno=spec.outbox[0])
    # Where sys.executable is a script that starts the interpreter and waits, that stands above us, and leads our group.
    exit_with_parent(spec.parent if os.getpgrp() == os.getpid() else os.getppid(), outbox)
    argument = attach(spec.argument[0], max(1, spec.argument[1]))[: spec.argument[1]].tobytes()
    receiver = Receiver(inbox, attach(*spec.inbox[1:3]), slots=spec.inbox[3])
    sender = Sender(outbox, attach(*spec.outbox[1:3]), slots=spec.outbox[3])
    for descriptor in (spec.argument[0], spec.inbox[1], spec.outbox[1]):
        os.close(descriptor)
    for end in (inbox, outbox):
        # Else a process that a stage starts would hold our ends open after our death.
        end.set_inheritable(False)
    module, _, function = spec.target.partition(":")
    status = 0
    try:
        getattr(import_module(module), function)(argument, receiver, sender)
    except EOFError:
        # The parent closed us or is gone.
        pass
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - said here, because the interpreter's own end is skipped
        sys.excepthook(*sys.exc_info())
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def exit_with_parent(parent: int, connection: socket.socket) -> None:
    """End this process, whatever it is doing, soon after `parent` is gone or has hung up `connection`.

    A daemon thread that waits on the connection and looks twice a second whether our parent is still the
    one that started us: a copy of the parent's end, in a process that it forked, hides its death from the
    connection. The parent says its own number, since it may be gone before we could ask who it is. No
    prctl(PR_SET_PDEATHSIG): that fires when the *thread* that started us ends.
    """
    threading.Thread(target=_watch, args=(parent, connection), name="zephon-parent", daemon=True).start()


def _watch(parent: int, connection: socket.socket) -> None:
    poll = select.poll()
    poll.register(connection.fileno(), 0)
    while os.getppid() == parent and not poll.poll(LOOK_S * 1000):
        pass
    os._exit(1)
