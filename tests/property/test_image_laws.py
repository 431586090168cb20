"""Streams with images keep every law: the page's rows, on every topology and backend, after any resume."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from drive import BACKENDS, Expected, Ranks, check_state, check_step, sizes
from hypothesis import given, settings
from hypothesis import strategies as st
from picture_oracle import oracle_plan
from pictures import FIXED, NATIVE, picture_stream
from profiles import examples

from zephon.cli.delivered import Delivered

SOURCES = ("captions", "chat", "interleaved", "obelics")
ROWS = 24


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The same corpora, with images of a native and of a fixed size."""
    made = {}
    for name, resize in (("native", NATIVE), ("fixed", FIXED)):
        made[name] = picture_stream(tmp_path_factory.mktemp(name), resize=resize, count=24)
    return made


@st.composite
def streams(draw: st.DrawFn, written: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a configuration of some of the corpora and any packing that keeps documents whole."""
    config = written[draw(st.sampled_from(["native", "fixed"]))]
    names = draw(st.lists(st.sampled_from(SOURCES), min_size=1, max_size=3, unique=True))
    align = draw(st.sampled_from([1, 1, 4]))
    kind = draw(st.sampled_from(["best_fit", "best_fit", "first_fit", "pad"]))
    budgets = draw(st.sampled_from([{}, {"images": 2}, {"patches": 60}, {"images": 3, "cost": 4}]))
    return {
        **config,
        "seed": draw(st.integers(0, 1000)),
        "lanes": draw(st.sampled_from([1, 2, 4, 6])),
        "sequence_length": 4 * draw(st.sampled_from([12, 24, 50])),
        "sources": {name: config["sources"][name] for name in names},
        "pack": {
            "kind": kind,
            "pool": draw(st.sampled_from([1, 4, 9])),
            "align": align,
            "long": draw(st.sampled_from(["split", "truncate", "drop"])),
            "homogeneous": draw(st.sampled_from(["none", "none", "source"])),
            "budgets": budgets if kind == "best_fit" else {},
        },
    }


@settings(max_examples=examples(25))
@given(data=st.data())
def test_rows_with_images_are_the_page_s_on_every_topology_and_after_any_resume(
    data: st.DataObject, written: dict[str, dict[str, Any]]
) -> None:
    config = data.draw(streams(written))
    plan = oracle_plan(config)
    expected = Expected(plan, count=ROWS)
    pixels = set()
    for size in (1, data.draw(st.sampled_from(sizes(plan.lanes)))):
        micro_batch = data.draw(st.integers(1, 2))
        own = {
            **config,
            "backend": data.draw(st.sampled_from(BACKENDS)),
            # Next to nothing: documents that wait are read again, and a row's images come when it is due.
            "memory_bytes": data.draw(st.sampled_from([1, 512 << 20])),
        }
        delivered = Delivered()
        stop = data.draw(st.integers(0, ROWS))
        with Ranks(own, size, micro_batch=micro_batch) as ranks:
            while ranks.consumed < stop:
                take(ranks, expected, plan, delivered)
            state = ranks.state()
        assert all(len(lane) < 1536 for lane in state["lanes"].values())
        with Ranks(own, size, micro_batch=micro_batch, state=state) as ranks:
            while ranks.consumed < ROWS:
                take(ranks, expected, plan, delivered)
            check_state(ranks.state(), expected)
        assert not delivered.repeated
        pixels.add(delivered.digest(ROWS))
    assert len(pixels) == 1


def take(ranks: Ranks, expected: Expected, plan: Any, delivered: Delivered) -> None:
    """Take a step, hold it to the oracle, and note the tensors."""
    step = ranks.step

    def noted() -> Any:
        batches = step()
        for batch in batches or ():
            delivered.add(batch)
            check_places(batch, plan.sequence_length)
        return batches

    ranks.step = noted  # type: ignore[method-assign]
    assert check_step(ranks, expected, plan)
    ranks.step = step  # type: ignore[method-assign]


def check_places(batch: Any, length: int) -> None:
    """Hold an image's placeholders to its grid, and the batch's images to the placeholders in its inputs."""
    placeholder = PAD_ID
    found = []
    for (row, start, count), grid in zip(
        batch["image_positions"].tolist(), batch["image_grid_thw"].tolist(), strict=True
    ):
        assert start + count <= length
        assert batch["tokens"][row, start : start + count].eq(placeholder).all()
        assert not batch["loss_mask"][row, max(0, start - 1) : start + count - 1].any()
        assert count in (grid[0] * grid[1] * grid[2] // 4, grid[0] * grid[1] * grid[2])
        found.append((row, start))
    assert found == sorted(found)
    assert int(batch["tokens"].eq(placeholder).sum()) == int(batch["image_positions"][:, 2].sum())


# <|pad|> in the small tokenizer, the images' placeholder; rows are filled with another.
PAD_ID = 6


def test_a_placeholder_is_the_token_that_these_tests_count(tmp_path: Path) -> None:
    from small_tokenizer import make_small_tokenizer

    assert make_small_tokenizer().token_to_id("<|pad|>") == PAD_ID
    with tempfile.TemporaryDirectory() as folder:
        assert picture_stream(Path(folder), count=4)["tokenizer"]["pad"] != "<|pad|>"
