"""Golden digests: the stream of a plan is the same for ever, whatever release reads it.

`python tests/golden/record.py` writes them anew. Do that only together with a higher PLAN_VERSION and the
reason in the commit: every run that is under way would go on with other data.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from golden_plans import FILE, PLANS, POSITIONS, digests, golden_config

from zephon import Loader, stream_digest
from zephon.plan import PLAN_VERSION

CHANGED = (
    "the stream changed: give the reason, raise PLAN_VERSION, and record the digests anew (tests/golden/record.py)"
)


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    """What was recorded."""
    return json.loads(FILE.read_text())


def test_the_digests_are_of_this_plan_version(golden: dict[str, Any]) -> None:
    assert golden["plan_version"] == PLAN_VERSION, "record the digests anew (tests/golden/record.py)"
    assert sorted(golden["digests"]) == sorted(PLANS)


@pytest.mark.parametrize("name", PLANS)
def test_the_stream_is_the_recorded_one(tmp_path: Path, golden: dict[str, Any], name: str) -> None:
    found = digests(golden_config(tmp_path, name))
    recorded = golden["digests"][name]
    for position in POSITIONS:
        assert found[str(position)] == recorded[str(position)], f"{name}, consumed={position}: {CHANGED}"


def test_a_recorded_state_goes_on_with_the_recorded_stream(tmp_path: Path, golden: dict[str, Any]) -> None:
    """A checkpoint of an earlier release: decoded, checked against the plan, and continued."""
    recorded = golden["state"]
    state = {
        **recorded["state"],
        "lanes": {lane: base64.b64decode(data) for lane, data in recorded["state"]["lanes"].items()},
    }
    last = POSITIONS[-1]
    with Loader(golden_config(tmp_path, recorded["plan"])) as loader:
        loader.load_state_dict(state)
        for batch in loader:
            assert batch is not None
            if loader.consumed == last:
                break
        assert stream_digest(loader.state_dict()) == golden["digests"][recorded["plan"]][str(last)], CHANGED
