"""A loader where things go wrong around it: forks, other threads, failed starts, odd arguments."""

from __future__ import annotations

import copy
import os
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streams import BACKENDS, stream, take

from zephon import Loader, StateError, StoreError


@pytest.fixture
def config(tmp_path: Path) -> dict[str, Any]:
    return stream(tmp_path)


def test_a_position_in_numpy_s_ints_is_saved_as_a_plain_one(config: dict[str, Any]) -> None:
    with Loader(config) as loader:
        take(loader, 3)
        state = loader.state_dict(consumed=np.int64(2))  # type: ignore[arg-type]
        assert type(state["consumed"]) is int
        loader.load_state_dict(state)
        for wrong in (2.0, True, "1"):
            with pytest.raises(StateError, match="is no number of sequences; pass an int"):
                loader.state_dict(consumed=wrong)  # type: ignore[arg-type]


def test_the_state_can_be_saved_where_the_engine_process_could_not_start(config: dict[str, Any]) -> None:
    with Loader({**config, "engine": "process"}) as loader:
        take(loader, 3)
        state = loader.state_dict()
    with Loader({**config, "engine": "process"}) as loader:
        loader.load_state_dict(state)
        shard = Path(config["sources"]["web"]["path"][0])
        shard.rename(shard.with_suffix(".away"))
        with pytest.raises(StoreError):
            next(iter(loader))
        assert loader.state_dict() == state


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_closing_while_another_thread_starts_leaves_nothing(config: dict[str, Any], backend: str) -> None:
    loader = Loader({**config, "backend": BACKENDS[backend]})
    failures: list[Exception] = []

    def start() -> None:
        try:
            next(iter(loader))
        except StoreError as error:
            failures.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    time.sleep(0.02)
    loader.close()
    thread.join(60)
    assert not thread.is_alive()
    assert loader._session is None
    assert [str(error) for error in failures if "closed" not in str(error)] == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_copy_of_a_started_loader_says_so(config: dict[str, Any], backend: str) -> None:
    with Loader({**config, "backend": BACKENDS[backend]}) as loader:
        take(loader, 2)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                next(iter(loader))
                told = "a batch"
            except StoreError as error:
                told = str(error)
            os.write(writing, told.encode())
            os._exit(0)
        os.waitpid(child, 0)
        assert (
            "forked, and its threads stayed behind; make a new loader in the child" in os.read(reading, 1000).decode()
        )
        os.close(reading)
        os.close(writing)
        take(loader, 2)


@pytest.mark.parametrize("take_along", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_loader_is_not_taken_along(config: dict[str, Any], take_along: Any) -> None:
    with Loader(config) as loader, pytest.raises(TypeError, match="a Loader can't be pickled or copied; make it where"):
        take_along(loader)


def test_what_a_shard_is_called_decides_nothing(tmp_path: Path) -> None:
    states = []
    for name in ("a", "renamed"):
        config = stream(tmp_path / name, settings={"index_dir": str(tmp_path / "index")})
        source = config["sources"]["web"]
        source["path"] = [
            str(Path(path).rename(Path(path).with_stem(f"{name}-{Path(path).stem}"))) for path in source["path"]
        ]
        source["stage"] = {"kind": "function", "function": "keyed_function:keyed"}
        with Loader(config) as loader:
            take(loader, 20)
            states.append(loader.state_dict())
    assert states[0] == states[1]
