"""A micro-batch's dict: shapes, dtypes and meanings, against plain loops over rows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from streams import stream
from zephon_megatron.batch import Form, config_for, gpt_batch

from zephon import Batch, Config, ConfigError, Loader, load_config

ROWS, LENGTH = 3, 32


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return stream(tmp_path_factory.mktemp("stream"), settings={"pack": {"pool": 4, "align": 4}, "lanes": 3})


def batches(written: dict[str, Any], form: Form, count: int = 8) -> list[tuple[Batch, dict[str, torch.Tensor]]]:
    """Return the loader's batches, and what becomes of them."""
    with Loader(config_for(load_config(written), form, micro_batch_size=ROWS)) as loader:
        iterator = iter(loader)
        return [(batch, gpt_batch(batch, form)) for batch, _ in zip(iterator, range(count), strict=False)]


def segments(batch: Batch) -> list[list[int]]:
    """Return each row's segment starts."""
    found: list[list[int]] = [[] for _ in range(ROWS)]
    for start in batch["cu_seqlens"][:-1].tolist():
        found[start // LENGTH].append(start % LENGTH)
    return found


def test_a_dense_batch_has_what_get_batch_reads(written: dict[str, Any]) -> None:
    for batch, made in batches(written, Form()):
        shapes = {name: (tuple(value.shape), value.dtype) for name, value in made.items()}
        assert shapes == {
            "tokens": ((ROWS, LENGTH), torch.int64),
            "labels": ((ROWS, LENGTH), torch.int64),
            "loss_mask": ((ROWS, LENGTH), torch.float32),
            "position_ids": ((ROWS, LENGTH), torch.int64),
        }
        assert type(made) is dict
        assert all(value.is_contiguous() and value.device.type == "cpu" for value in made.values())
        assert made["position_ids"].tolist() == [list(range(LENGTH))] * ROWS
        assert torch.equal(made["tokens"][:, 1:], made["labels"][:, :-1])
        assert torch.equal(made["loss_mask"], batch["loss_mask"])


def test_position_ids_start_anew_when_asked_to(written: dict[str, Any]) -> None:
    for batch, made in batches(written, Form(reset_position_ids=True)):
        for row, starts in enumerate(segments(batch)):
            expected = [place - max(s for s in starts if s <= place) for place in range(LENGTH)]
            assert made["position_ids"][row].tolist() == expected


@pytest.mark.parametrize("reset", [False, True])
def test_the_attention_mask_is_true_where_attention_is_not_allowed(written: dict[str, Any], reset: bool) -> None:
    form = Form(create_attention_mask=True, reset_attention_mask=reset)
    for batch, made in batches(written, form, 3):
        mask = made["attention_mask"]
        assert (tuple(mask.shape), mask.dtype) == ((ROWS, 1, LENGTH, LENGTH), torch.bool)
        for row, starts in enumerate(segments(batch)):
            for query in range(LENGTH):
                first = max(s for s in starts if s <= query) if reset else 0
                allowed = [first <= key <= query for key in range(LENGTH)]
                assert mask[row, 0, query].logical_not().tolist() == allowed


def test_eod_inputs_lose_their_loss_when_asked_to(written: dict[str, Any]) -> None:
    (batch, made), *_ = batches(written, Form())
    eod = int(made["tokens"][0, 3])
    assert made["loss_mask"][0, 3] == 1
    masked = gpt_batch(batch, Form(eod_token=eod))["loss_mask"]
    expected = made["loss_mask"].clone()
    expected[made["tokens"] == eod] = 0
    assert torch.equal(masked, expected)
    assert torch.equal(batch["loss_mask"], made["loss_mask"]), "the loader's own batch was changed"


@pytest.mark.parametrize("cp_size", [1, 2])
def test_a_packed_batch_has_each_row_s_bounds(written: dict[str, Any], cp_size: int) -> None:
    several = 0
    for batch, made in batches(written, Form(packed=True, cp_size=cp_size)):
        assert (tuple(made["cu_seqlens"].shape), made["cu_seqlens"].dtype) == ((ROWS, LENGTH + 1), torch.int32)
        assert (tuple(made["max_seqlen"].shape), made["max_seqlen"].dtype) == ((ROWS,), torch.int32)
        for row, starts in enumerate(segments(batch)):
            bounds = made["cu_seqlens"][row].tolist()
            assert bounds == starts + [LENGTH] * (LENGTH + 1 - len(starts))
            sizes = [stop - start for start, stop in zip(starts, [*starts[1:], LENGTH], strict=True)]
            assert made["max_seqlen"][row] == max(sizes)
            assert all(size % (2 * cp_size) == 0 for size in sizes)
            assert made["position_ids"][row].tolist() == [place for size in sizes for place in range(size)]
            several += len(starts) > 2
        assert ("cu_seqlens_padded" in made) is (cp_size > 1)
        if cp_size > 1:
            assert torch.equal(made["cu_seqlens_padded"], made["cu_seqlens"])
            assert made["cu_seqlens_padded"].data_ptr() != made["cu_seqlens"].data_ptr()
    assert several


def test_no_two_batches_share_memory(written: dict[str, Any]) -> None:
    form = Form(packed=True, cp_size=2, create_attention_mask=True, reset_attention_mask=True)
    seen: set[int] = set()
    kept = batches(written, form)
    for _, made in kept:
        places = {value.untyped_storage().data_ptr() for value in made.values()}
        assert len(places) == len(made)
        assert not places & seen
        seen |= places


def test_rows_that_context_parallel_ranks_can_t_share_are_refused(written: dict[str, Any]) -> None:
    config = load_config(written)
    with pytest.raises(ConfigError, match=r"pack.align=4, but packed rows with cp_size=4 need .* multiples of 8"):
        config_for(config, Form(packed=True, cp_size=4), micro_batch_size=1)
    with pytest.raises(ConfigError, match=r"sequence_length=32 is no multiple of 2 \* cp_size = 6"):
        config_for(config, Form(cp_size=3), micro_batch_size=1)
    # Dense rows are cut anywhere.
    assert isinstance(config_for(config, Form(cp_size=4), micro_batch_size=1), Config)


def test_only_what_is_no_part_of_the_plan_is_changed(written: dict[str, Any]) -> None:
    form = Form(packed=True, cp_size=2, create_attention_mask=True, reset_attention_mask=True)
    with Loader(written) as plain, Loader(config_for(load_config(written), form, micro_batch_size=2)) as changed:
        assert plain.plan == changed.plan
