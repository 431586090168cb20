"""`engine: process` equals `engine: thread`: batches, states, passes and errors; and sessions go on after a state."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from streams import BACKENDS, rows, samples, stream, take

from zephon import DataError, Loader, StateError, StoreError, Topology, stream_digest
from zephon.errors import ZephonError

ENGINES = ("thread", "process")


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """An endless stream of four lanes, micro-batches of two."""
    return stream(tmp_path_factory.mktemp("stream"), settings={"micro_batch_size": 2, "snapshots": 3})


@pytest.fixture(params=["thread", "process", "threads", "processes"])
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Each engine with a quiet backend, and each with workers."""
    return {
        "thread": {"engine": "thread", "backend": {"kind": "inline", "prefetch": 2}},
        "process": {"engine": "process"},
        "threads": {"engine": "process", "backend": BACKENDS["threads"]},
        "processes": {"engine": "process", "backend": BACKENDS["processes"]},
    }[request.param]


def test_batches_and_every_held_state_are_the_same(config: dict[str, Any], way: dict[str, Any]) -> None:
    with Loader(config) as plain, Loader({**config, **way}) as other:
        assert other.state_dict() == plain.state_dict()
        for _ in range(7):
            assert rows(take(other, 1)) == rows(take(plain, 1))
            assert other.consumed == plain.consumed
            assert other.state_dict() == plain.state_dict()
        for back in range(4):
            at = plain.consumed - 2 * back
            assert other.state_dict(consumed=at) == plain.state_dict(consumed=at)
        for loader in (plain, other):
            for wrong in (plain.consumed - 1, 1):
                with pytest.raises(StateError, match=rf"^no state at consumed={wrong}: micro-batches end at"):
                    loader.state_dict(consumed=wrong)
            # Also where the engine is ahead of the trainer and would know.
            with pytest.raises(
                StateError, match=r"^no state at consumed=16: 14 sequences were handed out; ask for one"
            ):
                loader.state_dict(consumed=16)
        # Asking for states took nothing away and put nothing out of order.
        assert rows(take(other, 3)) == rows(take(plain, 3))


def test_reports_are_the_same(config: dict[str, Any], way: dict[str, Any]) -> None:
    reports = []
    for settings in (config, {**config, **way}):
        with Loader(settings) as loader:
            take(loader, 5)
            reports.append({name: value for name, value in loader.report().items() if name not in ("wait_s", "pulled")})
    assert reports[0] == reports[1]


@pytest.mark.parametrize("engine", ENGINES)
def test_passes_end_and_begin_the_same(config: dict[str, Any], engine: str) -> None:
    settings = {**config, "length": 11, "engine": engine, "backend": {"kind": "inline", "prefetch": 3}}
    with Loader({**config, "length": 11}) as plain, Loader(settings) as other:
        for _ in range(3):
            passes = [list(loader) for loader in (plain, other)]
            assert [len(batches) for batches in passes] == [6, 6]
            assert rows(passes[0]) == rows(passes[1])
            assert other.state_dict() == plain.state_dict()
        assert plain.consumed == other.consumed == 33


def broken(folder: Path) -> dict[str, Any]:
    """Return a stream of one lane, one document a row, of which one sample is no list of numbers."""
    config = stream(
        folder,
        sources={"web": samples("web", 40, longest=20)},
        settings={"lanes": 1, "pack": {"kind": "pad"}, "spread": 1},
    )
    path = Path(config["sources"]["web"]["path"][0])
    lines = path.read_bytes().splitlines(keepends=True)
    lines[0] = b'{"tokens": "none"' + b" " * (len(lines[0]) - 19) + b"}\n"
    path.write_bytes(b"".join(lines))
    return config


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("prefetch", [0, 3])
def test_a_failure_comes_in_its_place_and_again(tmp_path: Path, engine: str, prefetch: int) -> None:
    config = broken(tmp_path)
    delivered = []
    for settings in (config, {**config, "engine": engine, "backend": {"kind": "inline", "prefetch": prefetch}}):
        with Loader(settings) as loader:
            iterator, got = iter(loader), []
            with pytest.raises(DataError, match=r"source web: .*'tokens' .*on_bad_sample: skip"):
                got.extend(iterator)
            state = loader.state_dict()
            delivered.append((rows(got), state))
            assert len(got) == state["consumed"]
            with pytest.raises(DataError, match="source web: "):
                next(iterator)
            assert loader.state_dict() == state
    assert delivered[0] == delivered[1]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_engine_process_that_is_killed_is_a_store_error(config: dict[str, Any], prefetch: int) -> None:
    settings = {**config, "engine": "process", "backend": {"kind": "inline", "prefetch": prefetch}}
    with Loader(settings) as loader:
        before = rows(take(loader, 2))
        state = loader.state_dict()
        os.kill(engine_pid(loader), signal.SIGKILL)
        with pytest.raises(
            StoreError, match=r"^the engine process ended \(killed by SIGKILL\); load the last state into a new loader$"
        ):
            # What was made before the death may still come.
            take(loader, 20)
        with pytest.raises(StoreError, match="the engine process ended"):
            loader.state_dict()
        # The remedy that the message names.
        loader.load_state_dict(state)
        after = rows(take(loader, 2))
    with Loader(config) as plain:
        assert rows(take(plain, 4)) == before + after


def engine_pid(loader: Loader) -> int:
    return loader._session._child.process.pid  # type: ignore[union-attr]


@pytest.mark.parametrize("engine", ENGINES)
def test_close_from_another_thread_wakes_the_one_that_waits(tmp_path: Path, engine: str) -> None:
    slow = {"kind": "function", "function": "slow_stage:documents"}
    config = stream(tmp_path, per_source={name: {"stage": slow} for name in ("code", "web")})
    loader = Loader({**config, "engine": engine, "backend": {"kind": "threads", "workers": 1, "prefetch": 1}})
    ended: list[BaseException] = []

    def ask() -> None:
        try:
            take(loader, 1)
        except ZephonError as error:
            ended.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    time.sleep(1.0)
    loader.close()
    asking.join(60)
    assert not asking.is_alive()
    assert [type(error) for error in ended] == [StoreError]


@pytest.mark.parametrize("engine", ENGINES)
def test_ranks_that_share_a_lane_deliver_their_rows_and_hold_one_state(config: dict[str, Any], engine: str) -> None:
    states, got = [], []
    for rank in range(4):
        with Loader({**config, "lanes": 2, "engine": engine}, Topology(dp_rank=rank, dp_size=4)) as loader:
            got += rows(take(loader, 3))
            states.append(loader.state_dict())
    with Loader({**config, "lanes": 2}) as plain:
        expected = rows(take(plain, 12))
        whole = plain.state_dict()
    assert sorted(got) == expected
    assert states[0]["lanes"] == states[2]["lanes"] == {"0": whole["lanes"]["0"]}
    assert states[1]["lanes"] == states[3]["lanes"] == {"1": whole["lanes"]["1"]}
    assert stream_digest({**whole, "lanes": {**states[0]["lanes"], **states[1]["lanes"]}}) == stream_digest(whole)


def test_little_memory_changes_nothing_but_time(config: dict[str, Any]) -> None:
    with Loader(config) as plain, Loader({**config, "memory_bytes": 1}) as tight:
        assert rows(take(tight, 12)) == rows(take(plain, 12))
        assert tight.state_dict() == plain.state_dict()
