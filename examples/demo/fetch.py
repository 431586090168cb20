"""Fetch and unpack Debian packages, where this machine can."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

TIMEOUT_S = 120


def fetch_package(names: Sequence[str], folder: Path) -> Path | None:
    """Return the unpacked tree of the first of the packages that can be had, or None.

    Names are alternatives: releases number the same package differently. Nothing is installed.
    """
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return None
    for name in names:
        tree = folder / name
        if tree.is_dir():
            return tree
    for refresh in (False, True):
        # A fresh machine has no package lists yet; they are asked for only once they are missed.
        if refresh and not _run(["apt-get", "update", "-qq"], folder):
            return None
        for name in names:
            tree = folder / name
            if _download(name, folder) and _unpack(name, folder, tree):
                return tree
    return None


def _download(name: str, folder: Path) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    return _run(["apt-get", "download", "-qq", name], folder) and any(folder.glob(f"{name}_*.deb"))


def _unpack(name: str, folder: Path, tree: Path) -> bool:
    partial = folder / f"{name}.partial"
    for archive in sorted(folder.glob(f"{name}_*.deb")):
        unpacked = _run(["dpkg", "-x", str(archive.resolve()), str(partial.resolve())], folder)
        archive.unlink()
        if unpacked:
            partial.rename(tree)
            return True
    return False


def _run(command: list[str], folder: Path) -> bool:
    folder.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
