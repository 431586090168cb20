"""The report: what a loader was given, in numbers, and where its sources are."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from streams import stream, take

from zephon import Loader


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """An endless stream of four lanes."""
    return stream(tmp_path_factory.mktemp("stream"))


def test_the_report_counts_what_was_given(config: dict[str, Any]) -> None:
    with Loader({**config, "micro_batch_size": 2}) as loader:
        reports = [loader.report()]
        for _ in range(6):
            take(loader, 5)
            reports.append(loader.report())
    assert [report["sequences"] for report in reports] == [0, 10, 20, 30, 40, 50, 60]
    assert [report["consumed"] for report in reports] == [0, 10, 20, 30, 40, 50, 60]
    last = reports[-1]
    assert last["capacity_tokens"] == 60 * 33
    assert last["packing_efficiency"] == last["tokens"] / last["capacity_tokens"]
    assert 0.8 < last["packing_efficiency"] <= 1
    assert sum(last["delivered"].values()) == last["tokens"]
    assert sorted(last["pulled"]) == sorted(last["delivered"]) == ["code", "web"]
    for before, after in pairwise(reports):
        for name in ("tokens", "documents"):
            assert after[name] > before[name]
        # Pulled is ahead of delivered by what the packer holds, and neither goes back.
        for name in ("code", "web"):
            assert after["pulled"][name] >= max(before["pulled"][name], after["delivered"][name])
    assert last["bad_samples"] == {"code": 0, "web": 0}


def test_a_report_without_places_is_the_rest_of_it(config: dict[str, Any]) -> None:
    with Loader(config) as loader:
        take(loader, 5)
        whole = loader.report()
        del whole["epochs"], whole["bad_samples"]
        assert loader.report(places=False) == whole


def test_the_report_counts_through_passes_and_states(config: dict[str, Any]) -> None:
    with Loader({**config, "length": 10}) as loader:
        list(loader)
        first = loader.report()
        state = loader.state_dict()
        list(loader)
        loader.load_state_dict(state)
        list(loader)
        second = loader.report()
    assert (first["sequences"], second["sequences"]) == (10, 30)
    assert second["consumed"] == 20
    assert second["capacity_tokens"] == 30 * 33
    assert sum(second["delivered"].values()) == second["tokens"]


def test_epochs_are_a_range_over_the_lanes(tmp_path: Path) -> None:
    config = stream(tmp_path, per_source={"code": {"weight": 9}, "web": {"weight": 1}})
    with Loader(config) as loader:
        assert loader.report()["epochs"] == {"code": [0, 0], "web": [0, 0]}
        take(loader, 300)
        epochs = loader.report()["epochs"]
    low, high = epochs["code"]
    assert 2 <= low <= high <= low + 3
    assert epochs["web"][1] <= 1


def test_skipped_samples_are_counted(tmp_path: Path) -> None:
    config = stream(tmp_path, settings={"on_bad_sample": "skip"})
    path = Path(config["sources"]["web"]["path"][0])
    lines = path.read_text().splitlines()
    for number in (3, 30, 60):
        lines[number] = '{"tokens": "none"}'
    path.write_text("\n".join(lines) + "\n")
    with Loader({**config, "length": "count"}) as loader:
        list(loader)
        assert loader.report()["bad_samples"] == {"code": 0, "web": 3}
