"""Children of `launch`: messages both ways, an end that the parent sees, no child without its parent."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from child_processes import alive, open_descriptors, until

from zephon.backends.launch import launch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


@pytest.mark.parametrize("size", [0, 10, 3_000_000])
def test_argument_and_messages_go_both_ways(size: int) -> None:
    descriptors = open_descriptors()
    child = launch("launched:echo", b"x" * size)
    assert child.receiver.receive() == (b"x" * size, [])
    # As large as the ring towards the child many times over: in pieces, both ways at once.
    array = np.arange(50_000)
    child.sender.send(b"array", [array, array[:0]])
    header, (first, second) = child.receiver.receive()
    assert (header, second.size) == (b"array", 0)
    assert np.array_equal(first, array)
    child.sender.send(b"stop")
    with pytest.raises(EOFError):
        child.receiver.receive()
    child.wait(5)
    assert child.fate() == "exit status 0"
    child.close()
    child.close()
    assert open_descriptors() == descriptors


@pytest.mark.parametrize(("argument", "status", "said"), [(b"7", 7, ""), (b"", 1, "ValueError: on purpose")])
def test_how_a_child_ended(argument: bytes, status: int, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    child = launch("launched:leave", argument)
    assert child.fate() == "still running"
    with pytest.raises(EOFError):
        child.receiver.receive()
    child.wait(5)
    assert child.fate() == f"exit status {status}"
    child.close()
    assert said in capfd.readouterr().err


def test_close_ends_a_child_that_waits_to_send() -> None:
    child = launch("launched:flood")
    child.receiver.receive()
    child.close(grace_s=10)
    # Whichever of its threads finds out first; it wasn't killed.
    assert child.fate() in ("exit status 0", "exit status 1")
    with pytest.raises(EOFError):
        child.receiver.receive()


def test_children_of_a_child_end_with_it() -> None:
    child = launch("launched:nested")
    said, grandchild, pid = child.receiver.receive()[0].split()
    assert said == b"grandchild"
    assert alive(int(grandchild))
    child.close()
    assert not alive(int(pid))
    assert until(lambda: not alive(int(grandchild)), seconds=10)
