"""The shape of the code: imports point one way, the core knows no trainer, files stay small."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "zephon"
FILES = sorted(CORE.rglob("*.py"))
LEAVES = {
    "errors",
    "native",
    "hashing",
    "permute",
    "topology",
    "item",
    "page",
    "config",
    "registry",
    "random",
    "progress",
    "yaml_text",
}
# From the lowest to the highest; a module may import from its own level and below.
LEVELS = [
    {"stores", "images"},
    {"formats"},
    {"stages", "tokenizer"},
    {"read_config"},
    {"lanes", "backends", "state", "collate"},
    {"plan"},
    {"engine"},
    {"count", "report"},
    {"advice"},
    {"loader"},
    {"cli"},
    {"testing"},
]
TRAINERS = {"lightning", "pytorch_lightning", "megatron", "nemo", "ray", "transformers", "accelerate", "deepspeed"}
TRAINER_HOMES = {"ray": CORE / "backends"}
INTEGRATIONS = ROOT / "integrations"
# What each may import of this project, beside itself.
BELOW = {
    "zephon_torch": {"zephon"},
    "zephon_lightning": {"zephon", "zephon_torch"},
    "zephon_megatron": {"zephon", "zephon_torch"},
    "zephon_nemo": {"zephon", "zephon_torch", "zephon_megatron"},
}
ADAPTERS = sorted(INTEGRATIONS.rglob("*.py"))
# Modules for one trainer, which the package itself imports when they are asked for.
TRAINER_MODULES = {INTEGRATIONS / "zephon_torch" / "hf_trainer.py": "transformers"}
VAGUE = {"utils", "util", "helper", "helpers", "manager", "managers", "misc", "common"}


def imports(path: Path) -> list[tuple[str, int]]:
    """Return (absolute module name, line) of every import in a file, also of those inside functions."""
    found = []
    package = path.relative_to(ROOT).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            head = ".".join(package[: -node.level]) if node.level else ""
            module = ".".join(part for part in (head, node.module or "") if part)
            found += [(f"{module}.{alias.name}", node.lineno) for alias in node.names]
    return found


def at_import(path: Path) -> set[str]:
    """Return the modules, and names of modules, that a file imports when it is imported itself."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(path.read_text(), str(path))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        lazy = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if not lazy and not typing:
            waiting += ast.iter_child_nodes(node)
    return found


def part_of(module: str) -> str | None:
    """Return a zephon module's part: the package or module right below zephon."""
    names = module.split(".")
    return names[1] if names[0] == "zephon" and len(names) > 1 else None


def level(part: str) -> int:
    for height, parts in enumerate(LEVELS):
        if any(part == name or part.startswith(f"{name}_") for name in parts):
            return height
    return -1


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    here = path.relative_to(CORE).with_suffix("").parts[0]
    if here == "__init__":
        return
    for module, line in imports(path):
        part = part_of(module)
        if part is None or part == here:
            continue
        assert level(part) <= level(here), f"{path}:{line}: {here} must not import {module}"
        if here in LEAVES:
            assert part in LEAVES, f"{path}:{line}: the leaf {here} must not import {module}"


def test_no_two_parts_import_each_other() -> None:
    edges = {
        (path.relative_to(CORE).with_suffix("").parts[0], part_of(module))
        for path in FILES
        for module, _ in imports(path)
    }
    assert [(a, b) for a, b in edges if b is not None and a < b and (b, a) in edges] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_core_imports_no_trainer_and_no_integration(path: Path) -> None:
    for module, line in imports(path):
        root = module.partition(".")[0]
        assert not root.startswith("zephon_"), f"{path}:{line}: the core must not import {module}"
        if root in TRAINERS:
            assert path.is_relative_to(TRAINER_HOMES.get(root, ROOT / "nowhere")), f"{path}:{line}: {module}"


@pytest.mark.parametrize("path", ADAPTERS, ids=lambda path: str(path.relative_to(INTEGRATIONS)))
def test_integrations_import_what_lies_below(path: Path) -> None:
    package = path.relative_to(INTEGRATIONS).parts[0]
    for module, line in imports(path):
        root = module.partition(".")[0]
        if root == "zephon" or root.startswith("zephon_"):
            assert root in BELOW[package] | {package}, f"{path}:{line}: {package} must not import {module}"


@pytest.mark.parametrize("path", sorted((INTEGRATIONS / "zephon_torch").rglob("*.py")), ids=lambda path: path.name)
def test_zephon_torch_needs_no_trainer_to_be_imported(path: Path) -> None:
    modules = at_import(path)
    trainers = {module.partition(".")[0] for module in modules} & TRAINERS
    assert trainers <= {TRAINER_MODULES.get(path)}, f"{path} imports {', '.join(trainers)}"
    for home in TRAINER_MODULES:
        name = ".".join(home.relative_to(INTEGRATIONS).with_suffix("").parts)
        assert not any(f"{module}.".startswith(f"{name}.") for module in modules), f"{path} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_torch_lives_in_collate(path: Path) -> None:
    # Resizing is torch's: no other library that we need anyway is as quick, and releases the interpreter's lock too.
    # The module is imported by who decodes images, at the first one; the other by who chose to decode on a GPU.
    if path.is_relative_to(CORE / "collate") or path.relative_to(CORE).as_posix() in (
        "images/resize.py",
        "images/gpu_jpeg.py",
    ):
        return
    roots = {module.partition(".")[0] for module, _ in imports(path)}
    assert "torch" not in roots, f"{path} imports torch"


def test_files_are_small_and_named_for_what_they_do() -> None:
    for path in [*FILES, *(ROOT / "integrations").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]:
        assert len(path.read_text().splitlines()) < 350, f"{path} is too long: split it"
        assert path.stem not in VAGUE, f"{path} says nothing about its purpose"


def test_importing_zephon_is_cheap() -> None:
    code = "import sys, zephon; print(sorted({'torch', 'tokenizers', 'pyarrow', 'ray'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout.strip() == "[]"


def test_test_files_have_names_of_their_own() -> None:
    # pytest imports them by name alone; one of two would not be run.
    names = sorted(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert names == sorted(set(names))
