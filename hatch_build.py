"""Compiles zephon/native where there is a C compiler; without one, Python does the same work, slower."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = Path("zephon/native")
# Contraction would round once where two operations round twice, and so differ between machines.
FLAGS = ["-O3", "-ffp-contract=off"]


class NativeBuild(BuildHookInterface[Any]):
    """Builds the extension modules in place and adds them to the wheel."""

    PLUGIN_NAME = "native"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; ZEPHON_NATIVE=0 leaves it out, ZEPHON_NATIVE=1 fails where it can't be done."""
        wanted = os.environ.get("ZEPHON_NATIVE")
        if self.target_name != "wheel" or wanted == "0":
            return
        try:
            compile_in_place(Path(self.root))
        except (Exception, SystemExit) as error:
            if wanted == "1":
                raise
            self.app.display_warning(f"zephon/native wasn't compiled ({error}); Python will do its work, slower")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"] += [f"{NATIVE}/*.so", f"{NATIVE}/*.pyd"]


def compile_in_place(root: Path) -> None:
    """Write an extension module beside each .pyx of zephon/native."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    here = Path.cwd()
    os.chdir(root)
    try:
        sources = sorted(NATIVE.glob("*.pyx"))
        flags = [] if os.name == "nt" else FLAGS
        extensions = [
            Extension(".".join(source.with_suffix("").parts), [str(source)], extra_compile_args=flags)
            for source in sources
        ]
        distribution = Distribution(
            {"name": "zephon", "ext_modules": cythonize(extensions, build_dir="build/native", quiet=True)}
        )
        command = distribution.get_command_obj("build_ext")
        command.inplace = True
        command.build_temp = "build/native"
        command.ensure_finalized()
        command.run()
    finally:
        os.chdir(here)
