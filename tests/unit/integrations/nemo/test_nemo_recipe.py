"""`data.backend=zephon` on a Bridge recipe: what is replaced, what stays, and what the dataset's settings become."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from streams import stream
from zephon_nemo.recipe import StreamCallback, use_zephon, with_stream_callback
from zephon_nemo.streams import find_state

from zephon import ConfigError, StateError

BRIDGE = Path(__file__).parents[3] / "megatron_bridge"


def forget() -> None:
    for name in [name for name in sys.modules if name.startswith("megatron.bridge") or name == "zephon_nemo.bridge"]:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def bridge(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Megatron-Bridge's contracts, of this project's writing."""
    forget()
    monkeypatch.syspath_prepend(str(BRIDGE))
    yield
    forget()


def recipe() -> Any:
    return SimpleNamespace(dataset="the recipe's own", model=SimpleNamespace(seq_length=32))


def test_a_recipe_without_a_section_stays_as_it_is() -> None:
    config, others = use_zephon(recipe(), ["train.lr=1", "dataset.seed=2", "database=3"])
    assert config.dataset == "the recipe's own"
    assert others == ["train.lr=1", "dataset.seed=2", "database=3"]


def test_another_backend_falls_through() -> None:
    assert use_zephon(recipe(), ["data.backend=megatron"])[0].dataset == "the recipe's own"


def test_the_section_becomes_the_dataset(tmp_path: Path) -> None:
    file = tmp_path / "stream.yaml"
    file.write_text(json.dumps(stream(tmp_path / "data")))
    words = ["data.backend=zephon", f"data.config={file}", "data.pack.pool=7", "data.packed=true", "a=b"]
    words += [f"data.valid={{config: {file}, length: 12}}", "data.begins_at=4", "data.save=here"]
    config, others = use_zephon(recipe(), words)
    assert others == ["a=b"]
    dataset = config.dataset
    assert (dataset.config, dataset.overrides) == (str(file), ["pack.pool=7"])
    assert (dataset.valid_config, dataset.valid_overrides) == (str(file), ["length=12"])
    assert (dataset.test_config, dataset.test_overrides) == (None, [])
    assert (dataset.begins_at, dataset.dataloader_save, dataset.packed) == (4, "here", True)
    assert (dataset.dataloader_type, dataset.seq_length) == ("external", 32)
    dataset.finalize()
    # What Bridge reads to give packed batches to stages in the middle, and to check sizes.
    assert dataset.enable_offline_packing
    assert dataset.offline_packing_specs.packed_sequence_size == 32
    dataset.packed = False
    assert not dataset.enable_offline_packing
    assert dataset.offline_packing_specs is None


def test_the_dataset_s_settings_are_plain_values(tmp_path: Path) -> None:
    dataset = use_zephon(recipe(), ["data.backend=zephon", "data.path=a", "data.lanes=4"])[0].dataset
    StreamCallback().on_data_init_start(SimpleNamespace(state=SimpleNamespace(cfg=SimpleNamespace(dataset=dataset))))
    assert dataset.trainer is not None
    values = {field.name: getattr(dataset, field.name) for field in dataclasses.fields(dataset)}
    assert "trainer" not in values
    assert json.loads(json.dumps(values)) == values


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["data=zephon"], "is no section"),
        (["data.config=a.yaml"], "data.backend is None"),
        (["data.backend=zephon"], "names no data"),
        (["data.backend=zephon", "data.path=a", "data.packed=2"], "data.packed=2"),
        (["data.backend=zephon", "data.config=a", "data.valid.save=b"], "data.valid.save"),
    ],
)
def test_a_section_that_makes_no_sense_is_an_error(words: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        use_zephon(recipe(), words)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_dataset_checks_itself_before_any_data() -> None:
    from zephon_nemo.bridge import ZephonDatasetConfig

    with pytest.raises(ConfigError, match=r"dataset\.config isn't set"):
        ZephonDatasetConfig().finalize()
    with pytest.raises(ConfigError, match="leave it external"):
        ZephonDatasetConfig(config="a.yaml", dataloader_type="single").finalize()
    with pytest.raises(ConfigError, match=r"can't read the configuration none\.yaml"):
        ZephonDatasetConfig(config="none.yaml").finalize()


def test_without_the_callback_the_position_isn_t_guessed() -> None:
    from zephon_nemo.bridge import ZephonDatasetConfig

    with pytest.raises(ConfigError, match="StreamCallback"):
        ZephonDatasetConfig(config="a.yaml").build_datasets(SimpleNamespace(pg_collection=None))


def test_the_callback_leaves_other_datasets_alone() -> None:
    other = SimpleNamespace()
    StreamCallback().on_data_init_start(SimpleNamespace(state=SimpleNamespace(cfg=SimpleNamespace(dataset=other))))
    assert vars(other) == {}


def test_the_callback_joins_those_that_are_there() -> None:
    (only,) = with_stream_callback(None)
    assert isinstance(only, StreamCallback)
    first, second = with_stream_callback(["mine"])
    assert (isinstance(first, StreamCallback), second) == (True, "mine")
    manager = SimpleNamespace(added=[], add=lambda one: manager.added.append(one))
    assert with_stream_callback(manager) is manager
    assert isinstance(manager.added[0], StreamCallback)


def test_a_state_that_isn_t_there_names_the_places(tmp_path: Path) -> None:
    with pytest.raises(StateError) as raised:
        find_state([str(tmp_path / "a"), str(tmp_path / "b")], step=7)
    assert "a/iter_0000007/train_dataloader_dprank000.pt" in str(raised.value)
    assert "b/iter_0000007" in str(raised.value)
