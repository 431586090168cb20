"""Where the texts come from: manuals, handbooks in many languages, code; from Debian, else from this machine."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fetch import fetch_package
from texts import Text, choose, read_texts

KERNEL_MANUALS = ("linux-doc-6.1", "linux-doc-6.12", "linux-doc-6.17")
PYTHON_MANUALS = ("python3.11-doc", "python3.13-doc", "python3.12-doc")
HANDBOOK = ("debian-handbook",)


class Corpus(NamedTuple):
    """Chosen texts, and one line that says what they are."""

    texts: list[Text]
    origin: str


def manuals(packages: Path, max_bytes: int) -> Corpus:
    """Return English manuals: those of the Linux kernel and of Python, else what /usr/share/doc has."""
    trees = [tree for names in (KERNEL_MANUALS, PYTHON_MANUALS) if (tree := fetch_package(names, packages))]
    if trees:
        # The reStructuredText that the HTML pages were made from.
        texts = [text for tree in trees for text in read_texts(tree, ["_sources/**/*.txt"])]
        english = (text for text in texts if "/translations/" not in text.path)
        return Corpus(choose(english, max_bytes), f"packages {' and '.join(tree.name for tree in trees)}")
    local = [
        *_below(Path("/usr/share/doc"), ["*.txt", "*.md", "*.rst", "README*", "*.gz", "copyright"]),
        *_below(_site_packages(), ["*.md", "*.rst", "*.txt", "METADATA"]),
    ]
    return Corpus(
        choose(local, max_bytes), "/usr/share/doc and installed packages' texts (no Debian package to be had)"
    )


def languages(packages: Path, max_bytes: int) -> Corpus:
    """Return a handbook in 26 languages, else C and C++ headers."""
    tree = fetch_package(HANDBOOK, packages)
    if tree:
        return Corpus(choose(read_texts(tree, ["*.html"]), max_bytes), f"package {tree.name}")
    local = [
        *_below(_site_packages(), ["*.h", "*.hpp", "*.cuh"]),
        *_below(Path("/usr/include"), ["*.h", "*.hpp"]),
        *_below(Path(sysconfig.get_path("include")), ["*.h"]),
    ]
    return Corpus(choose(local, max_bytes), "C and C++ headers (no Debian package to be had)")


def code(max_bytes: int) -> Corpus:
    """Return Python code: the standard library's and that of the installed packages."""
    local = [*_below(Path(sysconfig.get_path("stdlib")), ["*.py"]), *_below(_site_packages(), ["*.py"])]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Corpus(choose(local, max_bytes), f"Python {version}'s standard library and the installed packages")


def _site_packages() -> Path:
    return Path(sysconfig.get_path("purelib"))


def _below(root: Path, patterns: list[str]) -> Iterator[Text]:
    return read_texts(root, patterns) if root.is_dir() else iter(())
