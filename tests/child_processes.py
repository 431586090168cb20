"""What the system says of a process's children and shared memory; Linux only, as the tests that need it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path


def workers_of(pid: int | str) -> set[int]:
    """Return the process ids of a process's live worker processes."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            command = (stat.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if parent == str(pid) and state != "Z" and b"zephon.backends.child" in command:
            found.add(int(stat.parent.name))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def shared_maps() -> int:
    """Return how many of our shared memory segments this process has mapped."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum("memfd:zephon" in line or "/zephon-" in line for line in lines)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def shared_bytes() -> int:
    """Return what this process's anonymous memory files take."""
    found = {}
    for path in Path("/proc/self/fd").iterdir():
        try:
            if "memfd:" in str(path.readlink()):
                found[path.stat().st_ino] = path.stat().st_blocks * 512
        except FileNotFoundError:
            # The descriptor of this listing itself.
            continue
    return sum(found.values())


def until(condition: Callable[[], bool], *, seconds: float) -> bool:
    """Return whether a condition comes true within so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
