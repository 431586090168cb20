"""Ctrl-C in the middle of a message: told after it, and the engine process goes on as if nothing had been."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from streams import rows, stream, take

from zephon import Loader
from zephon.engine.interrupts import interrupts_later


@pytest.fixture(autouse=True)
def default_handler() -> Any:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_comes_after_the_block() -> None:
    done = []

    def block() -> None:
        with interrupts_later():
            signal.raise_signal(signal.SIGINT)
            done.append(1)

    with pytest.raises(KeyboardInterrupt):
        block()
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_leave_the_handler_alone() -> None:
    seen = []

    def other() -> None:
        with interrupts_later():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


@pytest.mark.parametrize("call", ["send", "receive"])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("asked", ["batch", "state"])
def test_an_engine_process_survives_it(
    call: str, moment: str, asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**stream(tmp_path), "engine": "process"}
    with Loader(settings) as loader:
        want = rows(take(loader, 8))
    with Loader(settings) as loader:
        iterator = iter(loader)
        found = [next(iterator), next(iterator)]
        child: Any = loader._session._child  # type: ignore[union-attr]
        side = child.sender if call == "send" else child.receiver
        plain = getattr(side, call)

        def interrupted(*arguments: Any) -> Any:
            monkeypatch.setattr(side, call, plain)
            if moment == "before":
                signal.raise_signal(signal.SIGINT)
            result = plain(*arguments)
            if moment == "after":
                signal.raise_signal(signal.SIGINT)
            return result

        monkeypatch.setattr(side, call, interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(iterator) if asked == "batch" else loader.state_dict()
        state = loader.state_dict()
        assert state["consumed"] == loader.consumed
        found += [next(iterator) for _ in range(6)]
        assert rows(found) == want
        assert loader.state_dict()["consumed"] == loader.consumed
