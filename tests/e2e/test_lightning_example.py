"""The example and the page's lines, run as a new user would: they train on the stream, and nothing complains of it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import yaml
from demo_shards import write_demo_shards

from zephon import Loader, stream_digest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[2]
FILE = re.compile(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Runs the page's programs one after another in one process: each line of arguments as a command line.
ONE_AFTER_ANOTHER = """
import runpy, sys
sys.path.insert(0, "")
for line in sys.stdin.read().splitlines():
    sys.argv = line.split()
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a folder that looks like the repository after `make demo`."""
    (tmp_path / "configs").mkdir()
    for name in ("demo.yaml", "lightning.yaml"):
        shutil.copy(ROOT / "configs" / name, tmp_path / "configs")
    write_demo_shards(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(arguments: Sequence[str], *, given: str | None = None) -> str:
    """Run Python and return what it printed; nothing that it complained of is about loaders."""
    result = subprocess.run(
        [sys.executable, *arguments], input=given, capture_output=True, text=True, timeout=240, check=False
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    for word in ("loader", "sampler", "worker", "resum"):
        assert not re.search(word, result.stderr.replace("Restor", ""), re.IGNORECASE), result.stderr
    return result.stdout


def digest_by_hand(config: str, count: int) -> str:
    """Return the digest of the stream's first rows, read by one rank without a trainer."""
    with Loader(config) as loader:
        for _ in loader:
            if loader.consumed == count:
                break
        return stream_digest(loader.state_dict())


def test_the_example_goes_on_at_other_numbers_of_processes(folder: Path) -> None:
    for ranks, until in ((4, 2), (3, 4), (1, 5)):
        options = f"--run out --save-every 2 --ranks {ranks} --until {until}"
        out = run([str(ROOT / "examples" / "lightning_pretrain.py"), *options.split()])
        digest = digest_by_hand("configs/lightning.yaml", 24 * until)
        assert out.splitlines()[-1] == f"step {until}, sequence {24 * until}, digest {digest}"
        assert "zephon/tokens" in out


def test_the_page_s_lines_and_its_command_line(folder: Path) -> None:
    for name, text in FILE.findall((ROOT / "docs" / "lightning.md").read_text()):
        # As many tokens as this folder's tokenizer has.
        (folder / name).write_text(text.replace("8192", "400"))
    (folder / "more.py").write_text((folder / "train.py").read_text().replace("max_steps=6", "max_steps=8"))
    # The stream's configuration itself, in place of its path.
    settings = yaml.safe_load((folder / "train.yaml").read_text())
    settings["data"]["config"] = yaml.safe_load((folder / "configs" / "demo.yaml").read_text())
    (folder / "whole.yaml").write_text(yaml.safe_dump(settings))
    fit = "train_cli.py fit --config"
    more = "--ckpt_path cli-checkpoints/newest.ckpt --trainer.max_steps 8"
    commands = ["train.py", "more.py", f"{fit} train.yaml", f"{fit} whole.yaml {more}"]
    run(["-c", ONE_AFTER_ANOTHER], given="\n".join(commands))
    digest = digest_by_hand("configs/demo.yaml", 8 * 16)
    for path in ("checkpoints/newest.ckpt", "cli-checkpoints/newest.ckpt"):
        checkpoint = torch.load(path, weights_only=True)
        state = checkpoint["ZephonDataModule"]["train"]
        assert (checkpoint["global_step"], state["consumed"], stream_digest(state)) == (8, 8 * 16, digest)
