"""Released wheels of Megatron-LM and NeMo, unpacked: for checks against their own code, where they can be had."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

# The newest of each whose parts run on this Python without a GPU; none of their dependencies is installed.
WHEELS = {
    "megatron-core": "megatron-core==0.19.2",
    "megatron-bridge": "megatron-bridge==0.6.2",
    "nemo-automodel": "nemo-automodel==0.7.0",
    "torchdata": "torchdata==0.11.0",
}


def unpacked(name: str, folder: Path) -> Path:
    """Return the folder of an unpacked wheel; skip the test where wheels weren't asked for, or can't be had.

    ZEPHON_WHEELS=1 asks for them (`make wheels`).
    """
    if not os.environ.get("ZEPHON_WHEELS"):
        pytest.skip(f"needs the wheel of {name}, which ZEPHON_WHEELS=1 downloads (make wheels)")
    place = folder / name
    if not place.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--python-version", "3.12", "--dest", str(folder / "downloaded" / name), WHEELS[name]]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            pytest.skip(f"{WHEELS[name]} can't be downloaded: {ended.stderr.strip().splitlines()[-1:]}")
        (wheel,) = (folder / "downloaded" / name).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(place)
    return place
