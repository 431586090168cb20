"""Channels: whole messages, in order, of any size; nobody waits for one who is gone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from zephon.backends.shared_memory import attach, reserve
from zephon.backends.transport import channel

DTYPES = ["<u4", "<i8", "<i4", "|u1", "|b1", "<f4", "<f2", "<U3", ">i2"]
arrays = hnp.arrays(
    st.sampled_from(DTYPES), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6), elements=None
)


@given(
    messages=st.lists(st.tuples(st.binary(max_size=40), st.lists(arrays, max_size=4)), max_size=6),
    slots=st.integers(1, 3),
    slot_bytes=st.integers(1, 64),
)
def test_messages_arrive_whole_and_in_order(
    messages: list[tuple[bytes, list[NDArray[Any]]]], slots: int, slot_bytes: int
) -> None:
    sender, receiver = channel(slots=slots, slot_bytes=slot_bytes)
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(lambda: [sender.send(header, arrays) for header, arrays in messages])
        for header, given_arrays in messages:
            got_header, got = receiver.receive()
            assert got_header == header
            assert [(a.dtype, a.shape, a.tobytes()) for a in got] == [
                (a.dtype, a.shape, a.tobytes()) for a in given_arrays
            ]
        sent.result(5)
    sender.close()
    receiver.close()


def test_received_arrays_are_the_callers_own() -> None:
    sender, receiver = channel(slots=1, slot_bytes=64)
    sent = np.arange(4)
    sender.send(b"", [sent])
    _, (first,) = receiver.receive()
    sender.send(b"", [sent + 10])
    receiver.receive()
    first += 1
    assert first.tolist() == [1, 2, 3, 4]
    sender.close()
    receiver.close()


def test_strided_arrays_are_sent_as_they_look() -> None:
    sender, receiver = channel()
    matrix = np.arange(12).reshape(3, 4)
    sender.send(b"", [matrix.T, matrix[:, ::2], matrix[::-1]])
    _, got = receiver.receive()
    assert [a.tolist() for a in got] == [matrix.T.tolist(), matrix[:, ::2].tolist(), matrix[::-1].tolist()]
    sender.close()
    receiver.close()


def test_send_waits_while_the_ring_is_full() -> None:
    sender, receiver = channel(slots=2, slot_bytes=1 << 10)
    array = np.zeros(1 << 10, np.uint8)
    sender.send(b"0", [array])
    sender.send(b"1", [array])
    with ThreadPoolExecutor(1) as pool:
        third = pool.submit(sender.send, b"2", [array])
        time.sleep(0.05)
        assert not third.done()
        assert receiver.receive()[0] == b"0"
        third.result(5)
    assert [receiver.receive()[0], receiver.receive()[0]] == [b"1", b"2"]
    sender.close()
    receiver.close()


@pytest.mark.parametrize("closer", ["receiver", "sender"])
def test_close_wakes_a_send_that_waits(closer: str) -> None:
    sender, receiver = channel(slots=1, slot_bytes=16)
    array = np.zeros(16, np.uint8)
    sender.send(b"", [array])
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(sender.send, b"", [array])
        time.sleep(0.05)
        {"receiver": receiver, "sender": sender}[closer].close()
        with pytest.raises(EOFError):
            waits.result(5)
    sender.close()
    receiver.close()


@pytest.mark.parametrize("closer", ["receiver", "sender"])
def test_close_wakes_a_receive_that_waits(closer: str) -> None:
    sender, receiver = channel(slots=1, slot_bytes=16)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(receiver.receive)
        time.sleep(0.05)
        {"receiver": receiver, "sender": sender}[closer].close()
        with pytest.raises(EOFError):
            waits.result(5)
    sender.close()
    receiver.close()


def test_what_was_sent_before_the_end_still_arrives() -> None:
    sender, receiver = channel()
    for number in range(2):
        sender.send(b"%d" % number, [np.full(10, number)])
    sender.close()
    assert [receiver.receive()[1][0][0] for _ in range(2)] == [0, 1]
    with pytest.raises(EOFError):
        receiver.receive()
    receiver.close()


def test_arrays_of_objects_are_refused_before_anything_is_sent() -> None:
    sender, receiver = channel()
    for array in (np.array([None]), np.zeros(2, [("a", "i4")])):
        with pytest.raises(TypeError, match="can't be sent"):
            sender.send(b"", [array])
    sender.send(b"fine")
    assert receiver.receive() == (b"fine", [])
    sender.close()
    receiver.close()


def test_shared_memory_works_without_anonymous_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.memfd_create")
    sender, receiver = channel(slots=2, slot_bytes=1 << 16)
    sender.send(b"", [np.arange(1000)])
    assert receiver.receive()[1][0].sum() == 499_500
    sender.close()
    receiver.close()


def test_missing_memory_is_one_line_with_a_remedy() -> None:
    code = """if True:
        import resource
        from zephon.backends.shared_memory import reserve
        from zephon.errors import StoreError
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        try:
            reserve(2 << 20)
        except StoreError as error:
            print(error)
    """
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("can't get 2097152 bytes of shared memory from ")
    assert "backend.workers" in result.stdout
    assert result.stdout.count("\n") == 1


def test_mapped_memory_outlives_its_descriptor() -> None:
    descriptor = reserve(100)
    here, there = attach(descriptor, 100), attach(descriptor, 100)
    os.close(descriptor)
    here[7] = 42
    assert there[7] == 42


def test_no_thread_is_left() -> None:
    before = threading.active_count()
    sender, receiver = channel()
    sender.close()
    receiver.close()
    assert threading.active_count() == before
