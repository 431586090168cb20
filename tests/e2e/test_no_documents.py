"""Sources of which no sample gives a document: an error after `max_empty` of them, and Ctrl-C before."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from pictures import picture, picture_stream, write_tars

from zephon import DataError, Loader

WAYS: dict[str, dict[str, Any]] = {
    "inline": {"backend": {"kind": "inline", "prefetch": 0}},
    "threads": {"backend": {"kind": "threads", "workers": 1}},
    "engine process": {"backend": {"kind": "threads", "workers": 1}, "engine": "process"},
}
SCRIPT = """
import json, sys
import zephon
loader = zephon.Loader(json.loads(sys.argv[1]))
iterator = iter(loader)
print("ready", flush=True)
next(iterator)
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Images whose captions are all empty."""
    folder = tmp_path_factory.mktemp("empty")
    config = picture_stream(folder, sources=("captions",), count=2)
    samples = [{"png": picture(number, kind="png")[1], "txt": b""} for number in range(12)]
    source = {**config["sources"]["captions"], "path": write_tars(folder / "silent", samples)}
    return {**config, "sources": {"silent": source}}


@pytest.mark.parametrize("way", WAYS)
def test_samples_without_a_document_raise_after_max_empty(config: dict[str, Any], way: str) -> None:
    with (
        Loader({**config, **WAYS[way], "max_empty": 50}) as loader,
        pytest.raises(DataError, match=r"^source silent: 50 samples in a row gave no document \(lane 0\); check its"),
    ):
        next(iter(loader))


@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_ends_the_search_for_a_document(config: dict[str, Any], way: str) -> None:
    command = [sys.executable, "-W", "error", "-c", SCRIPT, json.dumps({**config, **WAYS[way]})]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.5)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        try:
            _, printed = process.communicate(timeout=60)
        finally:
            process.kill()
    assert printed.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode in (1, -signal.SIGINT)
