"""README and docs/: the reference is up to date, examples run, and what is named is there."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import textwrap
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import typer
from demo_shards import write_demo_shards

from zephon import Loader, registry, stream_digest
from zephon.cli.main import app
from zephon.config import Pack
from zephon.item import Item

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(?:<!-- (\w+)(?:: (\S+))? -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
MENTION = re.compile(r"\b(?:zephon|tests|configs|examples|docs|benchmarks)/[\w./-]*\w/?")
# Examples of new files' names.
PLACEHOLDER = "NAME"

each = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


class Block(NamedTuple):
    """A fenced block: `mark` of the comment above it (run, file, from) and its `argument`."""

    mark: str
    argument: str
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*(part or "" for part in found)) for found in BLOCK.findall(page.read_text())]


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return BLOCK.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)}


def test_the_reference_is_what_the_docstrings_say() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    assert text == generator().render(), "run: python docs/generate.py"
    text = (ROOT / "docs" / "api.md").read_text()
    assert text == generator().render_api(), "run: python docs/generate.py"


def test_the_generator_insists_on_a_word_for_every_field() -> None:
    module = generator()
    struct = module.msgspec.defstruct("Half", [("known", int), ("unknown", int)], namespace={"__doc__": "known  it is"})
    with pytest.raises(ValueError, match="says nothing of 'unknown'"):
        module.fields_table(struct)
    struct = module.msgspec.defstruct("More", [("known", int)], namespace={"__doc__": "known  it is\ngone  it was"})
    with pytest.raises(ValueError, match=r"names \['gone'\]"):
        module.fields_table(struct)


@each
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(prose(page)):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert "://" not in target, f"{page.name}: {target} leaves the repository"
        assert file.exists(), f"{page.name}: {target}"
        assert not anchor or anchor in anchors(file), f"{page.name}: {target} (has: {sorted(anchors(file))})"


@each
def test_named_files_are_there(page: Path) -> None:
    for mention in MENTION.findall(page.read_text()):
        if PLACEHOLDER not in mention:
            assert (ROOT / mention).exists(), f"{page.name}: {mention}"


@each
def test_python_blocks_parse(page: Path) -> None:
    for block in blocks(page):
        if block.language == "python":
            # A quoted method is indented.
            ast.parse(textwrap.dedent(block.text), page.name)


@each
def test_quoted_code_is_the_code(page: Path) -> None:
    for block in blocks(page):
        if block.mark == "from":
            assert block.text in (ROOT / block.argument).read_text(), f"{page.name}: {block.argument} says otherwise"


@each
def test_commands_and_their_options_exist(page: Path) -> None:
    lines = [line for block in blocks(page) if block.language != "python" for line in block.text.splitlines()]
    lines += re.findall(r"`([^`\n]+)`", prose(page))
    root = typer.main.get_command(app)
    for line in lines:
        found = re.match(r"(?:\$ )?zephon((?: [\w-]+)*)", line)
        if found is None or not found[1]:
            continue
        command, words = root, found[1].split()
        while words and hasattr(command, "commands"):
            assert words[0] in command.commands, f"{page.name}: zephon {found[1]}"
            command = command.commands[words.pop(0)]
        known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
        for option in re.findall(r"(?<=\s)--?[a-z][\w-]*", line):
            assert option in known, f"{page.name}: {line!r} (has: {sorted(known)})"


def test_the_picture_of_packing_is_what_the_packers_do() -> None:
    text = (ROOT / "docs" / "concepts.md").read_text()
    found = re.search(r"documents A–L of ([\d ]+) tokens, rows of (\d+) tokens, `pool: (\d+)`", text)
    assert found is not None
    lengths, capacity, pool = [int(length) for length in found[1].split()], int(found[2]), int(found[3])
    picture = next(block.text for block in blocks(ROOT / "docs" / "concepts.md") if block.text.startswith("best_fit "))
    width = picture.index("best_fit_split")
    for column, kind in enumerate(picture.splitlines()[0].split()):
        cells = [line[column * width : (column + 1) * width].strip() for line in picture.splitlines()[1:]]
        drawn = [cell for cell in cells if re.fullmatch(r"[A-L.]+", cell)]
        rows = packed(kind, lengths, capacity, pool)
        # The column of `pad` leaves some out.
        assert [row for row in rows if row in drawn] == drawn, kind
        assert "…" in cells or rows == drawn, kind


def packed(kind: str, lengths: list[int], capacity: int, pool: int) -> list[str]:
    """Return the rows that a packer gives while documents come, a letter a token."""
    packer = registry.resolve(registry.PACKERS, kind, place="kind")(Pack(kind=kind, pool=pool), capacity)
    rows = []
    for number, length in enumerate(lengths):
        packer.push(Item("source", 0, number, 0, 0, length))
        while (row := packer.pop(last=False)) is not None:
            drawn = ["."] * capacity
            for span in row.spans:
                size = span.stop - span.start
                drawn[span.offset : span.offset + size] = chr(ord("A") + span.item.sample) * size
            rows.append("".join(drawn))
    return rows


def test_the_readme_s_test_command_is_the_one_that_ci_runs() -> None:
    made = {line.partition(":")[0] for line in (ROOT / "Makefile").read_text().splitlines() if ":" in line}
    for target in re.findall(r"^make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE):
        assert target in made
    assert "make test" in (ROOT / ".ci" / "run").read_text().splitlines()


# Examples that run: configs/demo.yaml as it stands, on little data.


@pytest.fixture
def demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a folder that looks like the repository after `make demo`."""
    (tmp_path / "configs").mkdir()
    shutil.copy(ROOT / "configs" / "demo.yaml", tmp_path / "configs")
    write_demo_shards(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_files(page: Path, folder: Path) -> None:
    for block in blocks(page):
        if block.mark == "file":
            (folder / block.argument).write_text(block.text)


@pytest.mark.parametrize("page", [page for page in PAGES if "<!-- run -->" in page.read_text()], ids=lambda p: p.name)
def test_examples_run(page: Path, demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(page, demo)
    monkeypatch.syspath_prepend(str(demo))
    # The one line that docs/extending.md says a format needs.
    monkeypatch.setitem(registry.FORMATS, "lines", "my_format:LinesFormat")
    for block in blocks(page):
        if block.mark == "run":
            exec(compile(block.text, page.name, "exec"), {"__name__": "example"})


def test_the_readme_s_lines_print_what_it_says(demo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    block = next(block for block in blocks(ROOT / "README.md") if block.mark == "run")
    assert len([line for line in block.text.splitlines() if line]) == 12
    exec(compile(block.text, "README.md", "exec"), {"__name__": "example"})
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("(0, 1) torch.Size([2, 256])")
    assert printed[-2].startswith("the stream up to here: ")
    assert printed[-1] == "(17, 19)"


def test_the_first_run_with_images_goes_on_where_it_was_saved(
    demo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_files(ROOT / "docs" / "vision.md", demo)
    monkeypatch.syspath_prepend(str(demo))
    monkeypatch.delitem(sys.modules, "see", raising=False)
    for block in blocks(ROOT / "docs" / "vision.md"):
        if block.mark == "run":
            exec(compile(block.text, "vision.md", "exec"), {"__name__": "example"})
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [int(consumed) for consumed, *_ in printed] == list(range(4, 44, 4))
    assert all(int(images) > 0 for _, images, _ in printed)
    assert float(printed[-1][2]) < float(printed[0][2])
    # GNU tar's command makes the same samples.
    samples = members("data/captions-000.tar")
    command = next(block.text for block in blocks(ROOT / "docs" / "vision.md") if block.text.startswith("tar --sort"))
    subprocess.run(command.split(), check=True)
    assert members("data/captions-000.tar") == samples


def members(path: str) -> list[str]:
    """Return the names of a tar's files, in their order."""
    with tarfile.open(path) as tar:
        return [member.name.removeprefix("./") for member in tar if member.isfile()]


def test_functions_of_the_docs_are_pure(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(ROOT / "docs" / "extending.md", demo)
    monkeypatch.syspath_prepend(str(demo))
    digests = set()
    for kind in ("inline", "threads"):
        stage = {"kind": "function", "function": "my_functions:halves", "options": {"keep": 0.5}}
        config = {
            "lanes": 2,
            "sequence_length": 16,
            "device": "cpu",
            "tokenizer": {"path": "demo-data/tokenizer.json", "eos": "<|endoftext|>"},
            "sources": {"manuals": {"path": "demo-data/manuals-000.tar", "block_samples": 4, "stage": stage}},
            "backend": {"kind": kind},
        }
        with Loader(config) as loader:
            batches = iter(loader)
            for _ in range(20):
                next(batches)
            digests.add(stream_digest(loader.state_dict()))
    assert len(digests) == 1


def test_the_quick_start_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "quickstart.md"
    write_files(page, tmp_path)
    for block in [block for block in blocks(page) if block.mark == "run"][:2]:
        exec(compile(block.text, page.name, "exec"), {"__name__": "example"})
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}

    def train(steps: int) -> list[str]:
        command = [sys.executable, "train.py"]
        run = subprocess.run(
            command, env={**environment, "STEPS": str(steps)}, capture_output=True, text=True, check=True, timeout=200
        )
        # No advice either: the data suit the settings.
        assert run.stderr == ""
        return run.stdout.splitlines()

    whole = train(12)
    assert [line.split()[1] for line in whole] == ["5", "10", "12"]
    (tmp_path / "checkpoint.pt").unlink()
    parts = [train(5), train(10), train(12)]
    assert [line for part in parts for line in part] == whole


def test_the_checkpoint_example_runs_on_two_ranks(demo: Path) -> None:
    write_files(ROOT / "docs" / "troubleshooting.md", demo)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "STEPS": "2",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "train.py"]
    ranks = [
        subprocess.Popen(command, env={**environment, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True, cwd=demo)
        for rank in range(2)
    ]
    try:
        printed = [rank.communicate(timeout=200)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0]
    digests = []
    with Loader("configs/demo.yaml") as loader:
        for _ in loader:
            if loader.consumed % 16 == 0:
                digests.append(f"{loader.consumed // 16} {loader.consumed} {stream_digest(loader.state_dict())}")
            if loader.consumed == 32:
                break
    assert printed == ["\n".join(digests) + "\n", ""]
