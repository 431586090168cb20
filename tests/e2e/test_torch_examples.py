"""The examples for PyTorch's trainers on real processes: resumed at other sizes, each step's loss stays the same."""

from __future__ import annotations

import base64
import json
import random
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from msgspec.structs import replace
from oracle_plan import Doc
from rank_processes import check_ended_well, run_ranks
from streams import stream, take
from torch.nn.functional import cross_entropy

from zephon import Loader, load_config, stream_digest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "example_rank.py"
# What takes longest to import.
PRELOAD = {
    "pytorch_dcp.py": ["zephon_torch", "torch.distributed.checkpoint.state_dict", "torch.distributed.fsdp"],
    "accelerate_train.py": ["zephon_torch", "accelerate"],
    "hf_trainer.py": ["zephon_torch.hf_trainer", "transformers.trainer", "transformers.models.llama.modeling_llama"],
}
STEPS = 3
VOCABULARY = 500


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a small stream of 12 sequences a global batch."""
    folder = tmp_path_factory.mktemp("stream")
    # Of few tokens, for models of few weights.
    draw = random.Random(1)
    sources = {
        name: [
            [Doc(tokens=tuple(draw.randrange(VOCABULARY) for _ in range(size)), mask=(1,) * (size - 1) + (0,))]
            for size in (draw.randrange(1, 40) for _ in range(200))
        ]
        for name in ("code", "web")
    }
    settings = {"lanes": 12, "global_batch_size": 12, "micro_batch_size": 3}
    path = folder / "stream.yaml"
    path.write_text(yaml.safe_dump(stream(folder, sources=sources, masked=True, settings=settings)))
    return path


def launch(example: str, config: Path, folder: Path, *, ranks: int, until: int, more: Sequence[str] = ()) -> list[Any]:
    """Run an example on so many processes, as torchrun does, and return the lines that the first one printed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ["--port", str(port), "--example", str(ROOT / "examples" / example), "--config", str(config)]
    arguments += ["--folder", str(folder), "--until", str(until), "--vocabulary", str(VOCABULARY), *more]
    processes = folder.with_name(f"{folder.name}-{until}")
    ended = run_ranks(PROGRAM, arguments, world=ranks, folder=processes, seconds=200, preload=PRELOAD[example])
    check_ended_well(ended)
    return [json.loads(line) for line in ended[0].out.splitlines() if line.startswith("{")]


def losses(lines: list[Any]) -> list[float]:
    return [line["loss"] for line in lines if "loss" in line]


def resumed(example: str, sizes: list[tuple[int, list[str]]], config: Path, folder: Path) -> list[float]:
    """Return the losses of an example's steps, resumed at each of the sizes."""
    found = []
    for number, (ranks, more) in enumerate(sizes, 1):
        lines = launch(example, config, folder, ranks=ranks, until=STEPS * number, more=more)
        assert len(losses(lines)) == STEPS
        found += losses(lines)
    return found


def by_hand(config: Path, steps: int) -> list[float]:
    """Return the losses of the examples' model in one process, without any of their adapters."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, 64), torch.nn.Linear(64, VOCABULARY))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    found = []
    with Loader(replace(load_config(config), micro_batch_size=12)) as loader:
        for _, batch in zip(range(steps), loader, strict=False):
            weights = batch["loss_mask"].flatten()
            logits = model(batch["tokens"]).flatten(0, 1)
            loss = (cross_entropy(logits, batch["labels"].flatten(), reduction="none") * weights).sum() / weights.sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(loss.item())
    return found


# Another number of ranks adds up in another order; other rows would differ in the second or third figure.
CLOSE = {"rel": 2e-5}


def test_dcp_goes_on_on_a_mesh_of_another_shape(config: Path, tmp_path: Path) -> None:
    sizes: list[tuple[int, list[str]]] = [(2, []), (1, []), (4, ["--replicate", "2"])]
    found = resumed("pytorch_dcp.py", sizes, config, tmp_path / "run")
    assert found == pytest.approx(by_hand(config, 3 * STEPS), **CLOSE)


def test_accelerate_goes_on_on_another_number_of_processes(config: Path, tmp_path: Path) -> None:
    found = resumed("accelerate_train.py", [(1, []), (2, [])], config, tmp_path / "run")
    assert found == pytest.approx(by_hand(config, 2 * STEPS), **CLOSE)


def test_the_hf_trainer_goes_on_on_another_number_of_processes(config: Path, tmp_path: Path) -> None:
    whole = losses(launch("hf_trainer.py", config, tmp_path / "whole", ranks=1, until=2 * STEPS))
    assert len(set(whole)) == 2 * STEPS
    found = resumed("hf_trainer.py", [(2, []), (1, [])], config, tmp_path / "run")
    assert found == pytest.approx(whole, **CLOSE)
    written = tmp_path / "run" / f"checkpoint-{2 * STEPS}" / "trainer_state.json"
    state = json.loads(written.read_text())["stateful_callbacks"]["zephon"]
    lanes = {lane: base64.b64decode(text) for lane, text in state["lanes"].items()}
    with Loader(replace(load_config(config), micro_batch_size=12)) as loader:
        take(loader, 2 * STEPS)
        assert stream_digest({**state, "lanes": lanes}) == stream_digest(loader.state_dict())
