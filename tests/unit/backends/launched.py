"""Functions that test_launch runs in processes of their own."""

from __future__ import annotations

import os
import sys
import time

import numpy as np

from zephon.backends.launch import launch
from zephon.backends.transport import Receiver, Sender


def echo(argument: bytes, inbox: Receiver, outbox: Sender) -> None:
    """Say what was given, then send back each message until one says stop."""
    outbox.send(argument)
    while True:
        header, arrays = inbox.receive()
        if header == b"stop":
            return
        outbox.send(header, arrays)


def leave(argument: bytes, inbox: Receiver, outbox: Sender) -> None:
    """End with a status, or by an exception if the argument is empty."""
    if argument:
        sys.exit(int(argument))
    raise ValueError("on purpose")


def nested(argument: bytes, inbox: Receiver, outbox: Sender) -> None:
    """Run a child of our own, tell its process id, and never end."""
    child = launch("launched:echo", b"grandchild")
    outbox.send(child.receiver.receive()[0] + b" %d %d" % (child.process.pid, os.getpid()))
    while True:
        time.sleep(60)


def flood(argument: bytes, inbox: Receiver, outbox: Sender) -> None:
    """Send more than anybody takes."""
    while True:
        outbox.send(b"", [np.zeros(1 << 20, np.uint8)])
