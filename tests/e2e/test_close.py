"""A loader leaves nothing: closed, failed, interrupted or killed, for every backend and engine."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
from child_processes import alive, open_descriptors, shared_maps, until, workers_of
from streams import stream, take

from zephon import Loader

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")

WAYS: dict[str, dict[str, Any]] = {
    f"{backend}, engine {engine}": {"engine": engine, "backend": {"kind": backend, "workers": 2, "prefetch": 2}}
    for backend in ("threads", "processes")
    for engine in ("thread", "process")
}
BUSIEST = "processes, engine process"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return stream(tmp_path_factory.mktemp("stream"))


def descendants(pid: int) -> set[int]:
    """Return the worker and engine processes of a process, and those of these."""
    found: set[int] = set()
    new = {pid}
    while new:
        new = set().union(*map(workers_of, new)) - found
        found |= new
    return found


def left() -> tuple[set[threading.Thread], int, int]:
    # Tracebacks of other tests hold what they had.
    gc.collect()
    return set(threading.enumerate()), shared_maps(), len(descendants(os.getpid()))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", ["close", "exception", "unused", "reload"])
def test_nothing_is_left_in_the_process(config: dict[str, Any], way: str, end: str) -> None:
    settings = {**config, **WAYS[way]}
    threads, maps, children = left()
    descriptors = []
    for _ in range(2):
        loader = Loader(settings)
        if end == "unused":
            with loader:
                pass
        elif end == "exception":
            with pytest.raises(ZeroDivisionError), loader:
                len(take(loader, 2)) // 0
        else:
            take(loader, 3)
            if end == "reload":
                loader.load_state_dict(loader.state_dict())
                take(loader, 1)
            loader.close()
        now = left()
        assert now[0] <= threads
        assert now[1:] == (maps, children)
        descriptors.append(open_descriptors())
    # Descriptors of shards may stay open for the next loader; none is added by each.
    assert descriptors[1] <= descriptors[0]


SCRIPT = """
import json, sys, time
from zephon import Loader
config = json.loads(sys.argv[1])
loader = Loader(config)
iterator = iter(loader)
next(iterator)
"""
READY = 'print("ready", flush=True)'
TRAINING = """
for batch in iterator:
    time.sleep(0.01)
"""
# Ready within the try: an interrupt right after it is to be caught too.
GUARDED = f"""
try:
    {READY}
    for batch in iterator:
        time.sleep(0.01)
except KeyboardInterrupt:
    state = loader.state_dict()
    loader.close()
    print("saved", state["consumed"], loader.consumed, flush=True)
"""


def start(config: dict[str, Any], way: str, code: str) -> subprocess.Popen[str]:
    """Start a trainer in a process group of its own and return it once it had a batch."""
    script = SCRIPT + (code if code is GUARDED else f"{READY}\n{code}")
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script), json.dumps({**config, **WAYS[way]})],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    if process.stdout.readline() != "ready\n":
        process.kill()
        pytest.fail(process.communicate()[1])
    return process


def segments() -> set[str]:
    return {path.name for path in Path("/dev/shm").glob("*zephon*")}


def expected_children(way: str) -> int:
    settings = WAYS[way]
    return 2 * (settings["backend"]["kind"] == "processes") + (settings["engine"] == "process")


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_left_of_a_killed_trainer(config: dict[str, Any], way: str) -> None:
    before = segments()
    process = start(config, way, TRAINING)
    children = descendants(process.pid)
    assert len(children) == expected_children(way)
    process.send_signal(signal.SIGKILL)
    _, printed = process.communicate(timeout=60)
    assert until(lambda: not any(map(alive, children)), seconds=15)
    assert printed == ""
    assert segments() <= before


@pytest.mark.parametrize(
    ("way", "code"),
    [*((way, GUARDED) for way in WAYS), ("threads, engine thread", TRAINING), (BUSIEST, TRAINING)],
    ids=[*(f"{way}, caught" for way in WAYS), "threads, uncaught", "processes, uncaught"],
)
def test_ctrl_c_ends_the_trainer_and_leaves_nothing(config: dict[str, Any], way: str, code: str) -> None:
    before = segments()
    process = start(config, way, code)
    children = descendants(process.pid)
    # As a terminal does: to the whole foreground group.
    os.killpg(process.pid, signal.SIGINT)
    out, printed = process.communicate(timeout=60)
    assert until(lambda: not any(map(alive, children)), seconds=15)
    if code is GUARDED:
        # The state can still be taken, at the position that was handed out.
        words = out.split()
        assert (words[0], printed, process.returncode) == ("saved", "", 0)
        assert words[1] == words[2]
    else:
        assert process.returncode in (1, -signal.SIGINT)
        assert printed.count("Traceback") == 1
        assert printed.rstrip().endswith("KeyboardInterrupt")
    assert segments() <= before


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("raise RuntimeError('loss is nan')", 1, "RuntimeError: loss is nan"),
        ("del loader, iterator", 0, ""),
        ("kept = sys.modules['kept'] = (loader, iterator)", 0, ""),
    ],
    ids=["falls off", "exits", "raises", "forgets", "keeps"],
)
def test_a_program_that_never_closes_ends_clean(config: dict[str, Any], code: str, status: int, said: str) -> None:
    process = start(config, BUSIEST, code)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == status
    assert printed.rstrip().rpartition("\n")[2] == said
    assert printed.count("Traceback") == bool(said)
    assert until(lambda: not descendants_of_group(process.pid), seconds=15)


def descendants_of_group(session: int) -> set[int]:
    """Return live processes of a session, whoever their parent is by now."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[3] == str(session) and fields[0] != "Z":
            found.add(int(stat.parent.name))
    return found


def test_a_failure_ends_the_trainer_with_its_one_line(tmp_path: Path) -> None:
    """An error on one rank ends that process with a status of its own; it never hangs."""
    config = stream(tmp_path)
    path = Path(config["sources"]["web"]["path"][0])
    lines = path.read_text().splitlines()
    lines[40:] = ["no JSON"] * len(lines[40:])
    path.write_text("\n".join(lines) + "\n")
    for way in ("threads, engine thread", BUSIEST):
        process = start(config, way, "for batch in iterator:\n    pass\n")
        children = descendants(process.pid)
        _, printed = process.communicate(timeout=60)
        assert process.returncode == 1
        assert "zephon.errors.DataError: source web: shard-000.jsonl, sample " in printed
        assert until(lambda children=children: not any(map(alive, children)), seconds=15)
