"""Zephon without its compiled parts: the same streams; and the wheels, with them and where no compiler is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "zephon", "integrations")


def test_python_alone_gives_the_recorded_streams() -> None:
    tests = ("tests/golden", "tests/unit/collate", "tests/unit/lanes")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env={**os.environ, "ZEPHON_NATIVE": "0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.parametrize("compiler", ["gcc", "false"], ids=["with a compiler", "without one"])
def test_a_wheel_has_what_could_be_compiled(compiler: str, tmp_path: Path) -> None:
    for name in PACKAGE:
        ignored = shutil.ignore_patterns("*.so", "__pycache__")
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "wheels", "."],
        cwd=tmp_path,
        env={**{name: value for name, value in os.environ.items() if name != "ZEPHON_NATIVE"}, "CC": compiler},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    compiled = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith((".so", ".pyd"))]
    if compiler == "false":
        assert not compiled
        assert wheel.name.endswith("-py3-none-any.whl")
    else:
        assert len(compiled) == len(list((ROOT / "zephon/native").glob("*.pyx")))
        assert "none-any" not in wheel.name
