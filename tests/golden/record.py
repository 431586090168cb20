"""Record the golden streams anew: only together with a higher PLAN_VERSION, and the reason in the commit."""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from golden_plans import FILE, PLANS, digests, golden_config

from zephon import Loader
from zephon.plan import PLAN_VERSION

STATE_OF, STATE_AT = "homogeneous and shuffled", 17


def state(folder: Path) -> dict[str, Any]:
    """Return a state in mid-stream, its bytes in base64."""
    with Loader(golden_config(folder, STATE_OF)) as loader:
        for _ in islice(loader, STATE_AT):
            pass
        saved = loader.state_dict()
    return {**saved, "lanes": {lane: base64.b64encode(data).decode() for lane, data in saved["lanes"].items()}}


def main() -> None:
    """Write streams.json."""
    found = {}
    for name in PLANS:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = digests(golden_config(Path(folder), name))
    with tempfile.TemporaryDirectory() as folder:
        recorded = {"plan": STATE_OF, "state": state(Path(folder))}
    record = {"plan_version": PLAN_VERSION, "digests": found, "state": recorded}
    FILE.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
