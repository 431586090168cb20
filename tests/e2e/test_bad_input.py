"""Bad input: each kind has its error, one line with place and remedy, the same through every backend and the CLI."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from faults import FAULTS, Broken, Fault, stopped
from streams import BACKENDS, stream

from zephon import ConfigError, DataError, Loader, StateError, StoreError, Topology, ZephonError
from zephon.cli.main import main
from zephon.cli.state_file import read_state, write_state

# An epoch of either source and more, so that no bad sample is missed.
BATCHES = 250
WAYS: dict[str, dict[str, Any]] = {
    **{name: {"backend": {**backend, "workers": 1}} for name, backend in BACKENDS.items()},
    "engine process": {"engine": "process", "backend": BACKENDS["threads"]},
}


def failure(broken: Broken, fault: Fault, way: dict[str, Any]) -> ZephonError:
    """Return what a trainer gets: on making the loader, on loading the state, or on a batch."""
    config, state = broken
    with pytest.raises(ZephonError) as caught:
        read({**config, **way}, state, Topology(dp_rank=0, dp_size=fault.dp_size))
    return caught.value


def read(config: dict[str, Any], state: Any, topology: Topology) -> None:
    with Loader(config, topology) as loader:
        if state is not None:
            loader.load_state_dict(state)
        for _, _batch in zip(range(BATCHES), loader, strict=False):
            pass


def cpu_s() -> float:
    """Return the processor time of this process and of those that it has ended, in seconds.

    Not the clock's: beside other work even a sleeping process may be kept waiting for half a minute. A hang,
    which takes no processor time, is for pytest's timeout.
    """
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_its_error_whatever_runs_the_stages(tmp_path: Path, name: str) -> None:
    fault = FAULTS[name]
    broken = fault.make(tmp_path)
    said: set[str] = set()
    for way in WAYS.values():
        began = cpu_s()
        error = failure(broken, fault, way)
        assert cpu_s() - began < 10
        assert isinstance(error, fault.error)
        assert type(error) in (ConfigError, StateError, StoreError, DataError)
        said.add(str(error))
    assert len(said) == 1, "one fault, one message"
    message = said.pop()
    assert "\n" not in message
    assert re.search(fault.message, message), message


@pytest.mark.parametrize("name", FAULTS)
def test_the_command_line_says_the_same_in_one_line(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fault = FAULTS[name]
    broken = fault.make(tmp_path)
    config, state = broken
    config["global_batch_size"] = fault.dp_size
    error = failure(broken, fault, WAYS["inline"])
    arguments = ["run", str(write_config(tmp_path, config)), "--steps", str(BATCHES), "--dp-size", str(fault.dp_size)]
    if state is not None:
        write_state(tmp_path / "state", state)
        arguments += ["--state-in", str(tmp_path / "state")]
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    out, err = capsys.readouterr()
    assert (caught.value.code, out) == (2, "")
    assert err.startswith("zephon: ")
    # The CLI names the file of a configuration, the API can't; and it knows the batch that sizes have to fill.
    said = str(error).removeprefix("the configuration: ")
    if name == "R and L":
        said = "dp_size=3 and lanes=4 don't divide each other; dp sizes that work with global_batch_size=3: 1"
    assert err.endswith(f"{said}\n")
    assert err.count("\n") == 1


def write_config(folder: Path, config: dict[str, Any]) -> Path:
    path = folder / "config.yaml"
    path.write_text(json.dumps({"global_batch_size": 1, "micro_batch_size": 1, **config}))
    return path


@pytest.mark.parametrize(
    "name", ["truncated tar", "unknown field", "missing shard", "data changed under a held document"]
)
def test_a_real_process_ends_in_seconds_without_a_traceback(tmp_path: Path, name: str) -> None:
    config, state = FAULTS[name].make(tmp_path)
    config = {**config, "backend": BACKENDS["processes"], "engine": "process"}
    command = [sys.executable, "-m", "zephon.cli.main", "run", str(write_config(tmp_path, config)), "--steps", "250"]
    if state is not None:
        write_state(tmp_path / "state", state)
        command += ["--state-in", str(tmp_path / "state")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("zephon: ")
    assert done.stderr.count("\n") == 1


def said(value: Any) -> Any:
    """Return a state without what is unset in it."""
    if isinstance(value, dict):
        return {name: said(inner) for name, inner in value.items() if inner is not None}
    return value


def test_a_state_file_with_any_byte_flipped_or_cut_is_refused(tmp_path: Path) -> None:
    config = stream(tmp_path)
    path = tmp_path / "state"
    write_state(path, stopped(config))
    data, whole = path.read_bytes(), read_state(path)
    loader = Loader(config)
    before = loader.state_dict()
    for place in range(len(data)):
        for flip in (1, 0x80):
            path.write_bytes(data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :])
            try:
                damaged = read_state(path)
                loader.load_state_dict(damaged)
            except StateError as error:
                refused = str(error)
            else:
                # The name of a field that is unset in the plan: the state says what it said before.
                assert said(damaged) == said(whole), place
                loader.load_state_dict(before)
                continue
            assert "\n" not in refused
    for size in range(0, len(data), 7):
        path.write_bytes(data[:size])
        with pytest.raises(StateError, match="holds no state"):
            read_state(path)
    assert loader.state_dict() == before
    path.write_bytes(data)
    loader.load_state_dict(read_state(path))
    loader.close()


def test_other_samples_go_on_where_bad_ones_are_skipped(tmp_path: Path) -> None:
    config, _ = FAULTS["invalid JSON"].make(tmp_path)
    skipping = {**config, "on_bad_sample": "skip", "length": "count"}
    with Loader(skipping) as loader:
        assert sum(1 for _ in loader) == len(loader)
        assert loader.report()["bad_samples"] == {"code": 0, "web": 1}
    only_web = {
        **skipping,
        "length": None,
        "max_bad_samples": 1,
        "lanes": 1,
        "sources": {"web": config["sources"]["web"]},
    }
    with pytest.raises(DataError, match=r"source web: 2 bad samples in lane 0, more than max_bad_samples=1; check the"):
        read(only_web, None, Topology())
