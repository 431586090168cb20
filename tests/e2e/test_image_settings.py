"""Settings of streams with images: what is refused, what budgets bound, and what `zephon run` says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pictures import FIXED, NATIVE, picture, picture_stream, words, write_parquet, write_tars
from streams import take

from zephon import ConfigError, DataError, Loader, StateError, load_config, stream_digest


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return picture_stream(tmp_path_factory.mktemp("images"), count=30)


CONFLICTS = [
    ({"pack": {"kind": "concat"}}, "have images"),
    ({"pack": {"kind": "best_fit_split"}}, "have images"),
    ({"pack": {"budgets": {"colour": 3}}}, "budgets.colour"),
    ({"pack": {"kind": "pad", "budgets": {"images": 3}}}, "keeps no budgets"),
]


@pytest.mark.parametrize(("settings", "fault"), CONFLICTS, ids=[fault for _, fault in CONFLICTS])
def test_settings_that_would_cut_images_are_refused(config: dict[str, Any], settings: Any, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        Loader({**config, **settings})


def test_sources_whose_images_differ_are_refused(config: dict[str, Any]) -> None:
    stage = config["sources"]["chat"]["stage"]
    other = {**stage, "images": {**stage["images"], "resize": FIXED}}
    sources = {**config["sources"], "chat": {**config["sources"]["chat"], "stage": other}}
    with pytest.raises(ConfigError, match="one pixel_values"):
        Loader({**config, "sources": sources})
    long = {**stage, "max_tokens": 500}
    sources = {**config["sources"], "chat": {**config["sources"]["chat"], "stage": long}}
    with pytest.raises(ConfigError, match="max_tokens=500 is more than a row"):
        Loader({**config, "sources": sources})


ABSURD = [
    (
        {"kind": "native", "temporal_patch": 10**9},
        r"sources\.captions\.stage\.images\.resize: an image may take .*; lower",
    ),
    ({"kind": "native", "patch": 10**6}, r"patch=1000000, .*; lower"),
    ({"kind": "native", "max_pixels": 10**12}, r"max_pixels=1000000000000, .*; lower"),
    ({"kind": "native", "min_pixels": 10**12}, r"max_pixels=1003520 is less than min_pixels=1000000000000"),
    ({"kind": "native", "min_pixels": 10**6, "patch": 1}, r"every image 62500 tokens at least, .* at most 97; set a"),
    ({"kind": "fixed", "size": 10**9}, r"sources\.captions\.stage .* <= 8192 - at `\$\.images\.resize\.size`"),
    (
        {"kind": "fixed", "size": 8192, "patch": 1},
        r"every image 67108864 tokens at least, .* at most 97; set a smaller",
    ),
]


@pytest.mark.parametrize(("resize", "fault"), ABSURD, ids=[str(resize) for resize, _ in ABSURD])
def test_absurd_sizes_are_refused_before_any_file_is_opened(
    config: dict[str, Any], resize: dict[str, Any], fault: str
) -> None:
    source = config["sources"]["captions"]
    stage = {**source["stage"], "images": {**source["stage"]["images"], "resize": resize}}
    with pytest.raises(ConfigError, match=fault) as caught:
        load_config({**config, "sources": {"captions": {**source, "path": "nowhere.tar", "stage": stage}}})
    assert "\n" not in str(caught.value)


def parquet_stream(folder: Path, rows: list[dict[str, Any]], **stage: Any) -> dict[str, Any]:
    config = picture_stream(folder, sources=("captions",), count=2)
    source = config["sources"]["captions"]
    path = write_parquet(folder / "rows", rows)
    return {**config, "sources": {"rows": {**source, "path": path, "stage": {**source["stage"], **stage}}}}


def test_images_of_parquet_lie_in_those_of_the_named_columns_that_it_has(tmp_path: Path) -> None:
    rows = [{"webp": None, "png": picture(n, kind="png")[1], "text": words(n, 8)} for n in range(20)]
    digests = set()
    for image in ({}, {"image": "png"}, {"image": ["png", "jpg"]}):
        config = parquet_stream(tmp_path, rows, text="text", **image)
        with Loader(config) as loader:
            assert all(len(batch["image_grid_thw"]) for batch in take(loader, 8))
            digests.add(stream_digest(loader.state_dict()))
    assert len(digests) == 1


MISSING = [
    ({}, r"no column 'jpg' or 'jpeg' .* or 'tiff' \(has: 'picture', 'text'\); set sources\.rows\.stage\.image$"),
    ({"image": "picture"}, r"no column 'txt' \(has: 'picture', 'text'\); set sources\.rows\.stage\.text$"),
    ({"image": "picture", "chat": {"field": "m"}}, r"no column 'm' .*; set sources\.rows\.stage\.chat\.field$"),
]


@pytest.mark.parametrize(("stage", "fault"), MISSING, ids=["image", "text", "chat"])
def test_a_column_that_parquet_lacks_is_named_with_its_setting(
    tmp_path: Path, stage: dict[str, Any], fault: str
) -> None:
    config = parquet_stream(tmp_path, [{"picture": picture(1)[1], "text": "hello"}] * 20, **stage)
    with Loader(config) as loader, pytest.raises(DataError, match=fault):
        take(loader, 1)


def test_budgets_bound_every_row_and_are_part_of_the_plan(config: dict[str, Any]) -> None:
    def most(budgets: dict[str, int]) -> dict[str, float]:
        with Loader({**config, "pack": {"pool": 16, "budgets": budgets}}) as loader:
            take(loader, 30)
            report = loader.report()
        assert report["work"]["row"]["patches"]["n"] == 60
        return {measure: values["max"] for measure, values in report["work"]["row"].items()}

    # A row takes nothing over its budget but the document that it starts with.
    largest = most({"patches": 1})["patches"]
    assert largest < most({})["patches"]
    assert most({"patches": int(largest)})["patches"] == largest
    with Loader({**config, "pack": {"budgets": {"images": 2}}}) as loader:
        for batch in take(loader, 10):
            rows = batch["image_positions"][:, 0].tolist()
            # A document that alone has more keeps its row.
            assert all(rows.count(row) <= 5 for row in rows)
        state = loader.state_dict()
    with Loader(config) as loader, pytest.raises(StateError, match=r"pack\.budgets"):
        loader.load_state_dict(state)


def test_the_command_says_how_much_and_how_evenly(config: dict[str, Any], tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from zephon.cli.main import app

    path = tmp_path / "config.yaml"
    path.write_text(json.dumps({**config, "global_batch_size": 4}))
    result = CliRunner().invoke(app, ["run", str(path), "--steps", "5", "--dp-size", "2"])
    assert result.exit_code == 0, result.output
    for said in ("images/s", "patches", "a sequence", "spread over", "micro-batches", "deviation"):
        assert said in result.output
    result = CliRunner().invoke(app, ["verify", str(path), "--steps", "4"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("resize", [NATIVE, FIXED], ids=["native", "fixed"])
def test_text_beside_images_gives_batches_without_any(tmp_path: Path, resize: dict[str, Any]) -> None:
    config = picture_stream(tmp_path, sources=("captions",), resize=resize, count=24)
    texts = [{"txt": words(number, 30).encode()} for number in range(60)]
    text = {"path": write_tars(tmp_path / "text", texts), "stage": {"kind": "text"}, "block_samples": 4}
    sources = {"captions": {**config["sources"]["captions"], "weight": 0.2}, "text": {**text, "weight": 0.8}}
    config = {
        **config,
        "micro_batch_size": 1,
        "sources": sources,
        "pack": {"pool": 8, "budgets": {"images": 1}},
    }
    counts = []
    with Loader(config) as loader:
        for batch in take(loader, 30):
            images = len(batch["image_grid_thw"])
            counts.append(images)
            assert batch["image_positions"].shape == (images, 3)
            assert batch["pixel_values"].shape[1:] == ((96,) if resize is NATIVE else (3, 32, 32))
            assert (batch["pixel_values"].shape[0] > 0) == (images > 0)
        work = loader.report()["work"]["row"]
    assert set(counts) == {0, 1}
    assert work["patches"]["min"] == 0
    assert work["tokens"]["min"] > 0
