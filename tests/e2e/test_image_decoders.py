"""Who decodes JPEGs is no part of the plan, and it is said where pixels may differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pictures import picture_stream
from streams import take
from typer.testing import CliRunner

from zephon import ConfigError, Loader, stream_digest
from zephon.cli.main import app

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a CUDA device")


def stream(folder: Path, decoder: str) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    return picture_stream(folder, sources=("captions",), images={"decoder": decoder}, count=16)


def test_a_state_goes_on_with_another_decoder(tmp_path: Path) -> None:
    cpu, auto = stream(tmp_path / "a", "cpu"), stream(tmp_path / "b", "auto")
    with Loader(cpu) as loader:
        first, rest = take(loader, 3), take(loader, 3)
        expected = stream_digest(loader.state_dict())
        assert loader.report()["inexact_pixels"] == []
    assert len(first) == 3
    with Loader(cpu) as loader:
        take(loader, 3)
        state = loader.state_dict()
    with Loader(auto) as loader:
        loader.load_state_dict(state)
        again = take(loader, 3)
        assert stream_digest(loader.state_dict()) == expected
        assert loader.report()["inexact_pixels"] == ["captions"]
    assert all(torch.equal(a["pixel_values"], b["pixel_values"]) for a, b in zip(rest, again, strict=True))


def test_a_gpu_that_isn_t_there_is_a_config_error(tmp_path: Path) -> None:
    with (
        pytest.raises(
            ConfigError, match=r"stage\.images\.decoder: torch sees no CUDA device here; set decoder: cpu or"
        ),
        Loader(stream(tmp_path, "cuda")) as loader,
    ):
        take(loader, 1)


def test_run_says_that_pixels_may_differ(tmp_path: Path) -> None:
    import yaml

    path = tmp_path / "stream.yaml"
    path.write_text(yaml.safe_dump(stream(tmp_path, "auto")))
    result = CliRunner().invoke(app, ["run", str(path), "--steps", "1"])
    assert result.exit_code == 0, result.output
    assert "of captions by a GPU where it can" in " ".join(result.output.split())
