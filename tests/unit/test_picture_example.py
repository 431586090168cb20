"""The example with images: its data, its configuration and its model go together, on pictures made here."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pictures import picture, words

from zephon import Loader, load_config

ROOT = Path(__file__).resolve().parents[2]


def test_the_example_s_model_learns_from_the_example_s_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "vision"))
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "demo"))
    from picture_data import LANGUAGES, SPECIAL, build_pictures
    from picture_model import PictureModel

    monkeypatch.chdir(tmp_path)
    tree = tmp_path / "pictures-data" / "packages" / "tuxpaint-stamps-default" / "stamps"
    tree.mkdir(parents=True)
    for number in range(40):
        (tree / f"{number:03d}.png").write_bytes(picture(number, kind="png", mode="RGBA")[1])
        lines = [words(number, 6), *(f"{name}.utf8={words(number + 50, 5)}" for name in LANGUAGES)]
        (tree / f"{number:03d}.txt").write_text("\n".join(lines))
    assert build_pictures(tmp_path / "pictures-data").startswith("40 PNG pictures")
    config = load_config(ROOT / "examples" / "vision" / "pictures.yaml")
    torch.manual_seed(0)
    model = PictureModel(
        vocabulary=4096, length=config.sequence_length, patch_values=3 * 8 * 8, patches=4, placeholder=1
    )
    assert SPECIAL[1] == "<|image|>"
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    with Loader(config) as loader:
        for batch, _ in zip(loader, range(12), strict=False):
            # Patches are of use only if there is one embedding for each placeholder.
            assert int((batch["tokens"] == 1).sum()) == batch["pixel_values"].view(-1, 4 * 3 * 64).shape[0]
            loss = model(batch) / batch["loss_mask"].sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
    assert losses[-1] < 0.8 * losses[0]
