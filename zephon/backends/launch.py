"""Start a process of our own: a fresh interpreter with a channel each way, that dies with its parent.

Not `multiprocessing`: its children import the program's main module first (and with it torch and the
trainer), may not be started from its daemonic processes, and share a resource tracker that complains
about what a killed process held. Nothing is forked from a process that may hold threads or CUDA.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

import msgspec
import numpy as np

from zephon.backends.child import Spec
from zephon.backends.shared_memory import attach, reserve
from zephon.backends.transport import SLOT_BYTES, SLOTS, Receiver, Sender, pair
from zephon.errors import ConfigError, StoreError

INBOX_BYTES = 1 << 16
# One thread a process: parallelism is the number of processes.
SINGLE_THREADED = {"RAYON_NUM_THREADS": "1", "FASTOKENS_BPE_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
# Hugging Face's tokenizers spend half of their time in malloc, a thirtieth of it less without fastbins.
MALLOC = "glibc.malloc.mxfast=0"
# Tells a tokenizer that its process is one of ours.
OURS = {"ZEPHON_WORKER": "1"}


class Child:
    """A running child: `sender` goes to it, `receiver` comes from it."""

    def __init__(self, process: subprocess.Popen[bytes], sender: Sender, receiver: Receiver) -> None:
        self.sender = sender
        self.receiver = receiver
        self.process = process
        self._owner = os.getpid()

    def hang_up(self) -> None:
        """Tell the child to end, from any thread; wakes whoever waits for it."""
        self.receiver.hang_up()

    def close(self, *, grace_s: float = 1.0) -> None:
        """End the child and free all that it took; it is killed if it is still there after `grace_s`."""
        if os.getpid() != self._owner:
            # A copy in a forked process: the child isn't its, and hanging up would end it for its owner.
            return
        self.receiver.close()
        self.sender.close()
        self.wait(grace_s)

    def wait(self, grace_s: float) -> None:
        """Wait for the child to end, and kill it after `grace_s`."""
        deadline = time.monotonic() + grace_s
        # Popen's own timed wait may oversleep by 50 ms, and where an interrupt (Ctrl-C) strikes in its poll, which
        # holds a lock, waits for ever.
        killed = False
        while not self._gone():
            if not killed and time.monotonic() > deadline:
                os.kill(self.process.pid, signal.SIGKILL)
                killed = True
            time.sleep(0.001)

    def _gone(self) -> bool:
        """Return whether the child has ended, and note how."""
        if self.process.returncode is None:
            try:
                pid, status = os.waitpid(self.process.pid, os.WNOHANG)
            except ChildProcessError:
                # Noticed before, by another thread or just before an interrupt; how it ended is lost.
                self.process.returncode = self.process.returncode or 0
            else:
                if pid:
                    self.process.returncode = os.waitstatus_to_exitcode(status)
        return self.process.returncode is not None

    def fate(self) -> str:
        """Return how the child ended, as words: "killed by SIGKILL", "exit status 1"."""
        status = self.process.returncode
        if status is None:
            return "still running"
        if status >= 0:
            return f"exit status {status}"
        try:
            return f"killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"killed by signal {-status}"


def launch(
    target: str,
    argument: bytes = b"",
    *,
    slots: int = SLOTS,
    slot_bytes: int = SLOT_BYTES,
    inherited: Sequence[int] = (),
) -> Child:
    """Start a process that runs `target`, a "module:function" of (argument, inbox: Receiver, outbox: Sender).

    Returns at once. The child ignores Ctrl-C, which is its parent's, and ends when the function returns,
    when the parent closes it, or when the parent is gone, even if that was killed. `slots` and
    `slot_bytes` are the ring of its outbox; it has the descriptors that are `inherited`, under their numbers
    here. It never imports the program's main module unless a callable in its argument needs that. Raises
    StoreError where no process or shared memory can be had.
    """
    if os.name != "posix" or not sys.executable:
        raise ConfigError("this platform or interpreter can't start worker processes; use backend.kind=threads")
    try:
        to_child, child_inbox = pair()
        from_child, child_outbox = pair()
    except OSError as error:
        raise StoreError(f"can't start a worker process: {error.strerror}; use fewer backend.workers") from error
    descriptors: list[int] = []
    try:
        sizes = (max(1, len(argument)), INBOX_BYTES, slots * slot_bytes)
        for size in sizes:
            descriptors.append(reserve(size))
        if argument:
            attach(descriptors[0], sizes[0])[:] = np.frombuffer(argument, np.uint8)
        spec = Spec(
            target=target,
            parent=os.getpid(),
            argument=(descriptors[0], len(argument)),
            inbox=(child_inbox.fileno(), descriptors[1], sizes[1], 1),
            outbox=(child_outbox.fileno(), descriptors[2], sizes[2], slots),
        )
        process = _start(spec, [child_inbox.fileno(), child_outbox.fileno(), *descriptors, *inherited])
        sender = Sender(to_child, attach(descriptors[1], sizes[1]), slots=1)
        receiver = Receiver(from_child, attach(descriptors[2], sizes[2]), slots=slots)
    except BaseException:
        to_child.close()
        from_child.close()
        raise
    finally:
        # The child has its own copies; ours would keep its end open after its death.
        child_inbox.close()
        child_outbox.close()
        for descriptor in descriptors:
            os.close(descriptor)
    return Child(process, sender, receiver)


def _start(spec: Spec, descriptors: list[int]) -> subprocess.Popen[bytes]:
    path = [str(entry) for entry in sys.path]
    code = f"import sys; sys.path[:] = {path!r}; from zephon.backends.child import main; main(sys.argv[1])"
    command = [sys.executable, "-c", code, msgspec.json.encode(spec).decode()]
    tunables = ":".join(filter(None, (MALLOC, os.environ.get("GLIBC_TUNABLES"))))
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **os.environ, **SINGLE_THREADED, **OURS}
    environment["GLIBC_TUNABLES"] = tunables
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            pass_fds=descriptors,
            env=environment,
            # A group of its own: Ctrl-C reaches it neither while it starts nor later.
            process_group=0,
        )
    except OSError as error:
        raise StoreError(
            f"can't start a worker process ({sys.executable}): {error}; use fewer backend.workers"
        ) from error
