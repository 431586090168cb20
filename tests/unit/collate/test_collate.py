from __future__ import annotations

import numpy as np
import pytest
import torch
from collate_reference import expected, make_host
from hypothesis import example, given
from hypothesis import strategies as st

from zephon.collate.batch import Batch
from zephon.collate.device import Collator, collate, device_text, resolve_device
from zephon.collate.host import HostBatch, layout
from zephon.collate.host_text import host_text, numpy_text
from zephon.errors import ConfigError

CPU = torch.device("cpu")


@st.composite
def hosts(draw: st.DrawFn) -> tuple[HostBatch, int]:
    width = draw(st.integers(2, 40))
    align = draw(st.sampled_from([1, 1, 2, 4]))
    lengths = draw(st.lists(st.lists(st.integers(1, width), max_size=8), min_size=1, max_size=4))
    mask_seed = draw(st.none() | st.integers(0, 9))
    return make_host(lengths, width, align=align, mask_seed=mask_seed), align


def collated(host: HostBatch, *, device: torch.device = CPU, **options: bool | int) -> Batch:
    settings = {"mask_boundary": True, "reset_position_ids": True, "attention_mask": False} | options
    return collate(host, device=device, **settings)  # type: ignore[arg-type]


@given(hosts(), st.booleans(), st.booleans(), st.booleans())
@example((make_host([[]], 9), 1), True, True, True)
@example((make_host([[8, 1], [9], []], 9), 1), True, True, True)
@example((make_host([[3, 5]], 9, align=4), 4), False, True, True)
@example((make_host([[90], [], [199, 1]], 200, mask_seed=1), 1), True, True, True)
@example((make_host([[1, 2, 3] * 40, [1] * 200, []], 200), 1), True, True, True)
@example((make_host([[3, 1] * 30, [5] * 20], 200, align=4), 4), True, True, False)
@example((make_host([[], []], 200), 1), True, False, True)
def test_batch_equals_the_token_by_token_reference(
    case: tuple[HostBatch, int], mask_boundary: bool, reset_position_ids: bool, align_padding: bool
) -> None:
    host, align = case
    align = align if align_padding else 1
    options = {"mask_boundary": mask_boundary, "reset_position_ids": reset_position_ids, "align": align}
    want = expected(host, mask_boundary=mask_boundary, reset_position_ids=reset_position_ids, align=align)
    batch = collated(host, attention_mask=True, **options)
    for name in ("tokens", "labels", "loss_mask", "position_ids", "cu_seqlens"):
        assert batch[name].tolist() == want[name], name
    segments = np.array(want["segments"])
    length = segments.shape[1]
    same = segments[:, :, None] == segments[:, None, :]
    causal = np.arange(length)[:, None] >= np.arange(length)[None, :]
    assert np.array_equal(batch["attention_mask"][:, 0].numpy(), same & causal)
    assert batch["max_seqlen"] == max(np.diff(want["cu_seqlens"]))
    assert batch.sequences == host.sequences


@given(hosts(), st.booleans(), st.booleans())
def test_numpy_and_torch_build_the_same_text(case: tuple[HostBatch, int], mask_boundary: bool, reset: bool) -> None:
    host, align = case
    rows, width = host.tokens.shape
    place = layout(host.pieces, rows, width - 1, mask_boundary=mask_boundary, align=align)
    arrays = host.tokens, host.mask, place.unpredicted, place.starts, place.gains
    tensors = [None if array is None else torch.from_numpy(array) for array in arrays]
    want = device_text(*tensors, reset=reset)  # type: ignore[arg-type]
    text = host_text(host, mask_boundary=mask_boundary, align=align, reset=reset)
    assert text.cu_seqlens.tolist() == place.cu_seqlens.tolist()
    assert text.cu_seqlens.dtype == np.int32
    assert text.max_seqlen == place.max_seqlen
    for found in (text.entries, numpy_text(host, place, reset=reset)):
        assert list(found) == list(want)
        for name, array in found.items():
            assert torch.from_numpy(array).dtype == want[name].dtype, name
            assert torch.equal(torch.from_numpy(array), want[name]), name


def test_shapes_and_dtypes_are_as_promised() -> None:
    batch = collated(make_host([[4, 4], [2]], 9, mask_seed=1), attention_mask=True)
    found = {name: (value.dtype, tuple(value.shape)) for name, value in batch.items() if name != "max_seqlen"}
    assert found == {
        "tokens": (torch.int64, (2, 8)),
        "labels": (torch.int64, (2, 8)),
        "loss_mask": (torch.float32, (2, 8)),
        "position_ids": (torch.int64, (2, 8)),
        "cu_seqlens": (torch.int32, (5,)),
        "attention_mask": (torch.bool, (2, 1, 8, 8)),
    }
    assert type(batch["max_seqlen"]) is int
    assert all(value.is_contiguous() for name, value in batch.items() if name != "max_seqlen")


def test_row_without_pieces_has_no_loss() -> None:
    batch = collated(make_host([[9], []], 9))
    assert batch["loss_mask"].sum(dim=1).tolist() == [8.0, 0.0]


def test_read_only_arrays_are_taken() -> None:
    host = make_host([[4]], 9, mask_seed=1)
    assert host.mask is not None
    for array in (host.tokens, host.pieces, host.mask):
        array.flags.writeable = False
    assert collated(host)["tokens"].shape == (1, 8)


def test_arrays_with_gaps_are_taken() -> None:
    host = make_host([[4, 3], [5]], 9, mask_seed=1)
    assert host.mask is not None
    wide, mask = np.repeat(np.repeat(host.tokens, 2, axis=1), 3, axis=0), np.repeat(host.mask, 2, axis=1)
    gappy = HostBatch(tokens=wide[1::3, 1::2], pieces=host.pieces, mask=mask[:, ::2], sequences=host.sequences)
    batch, want = collated(gappy), collated(host)
    assert all(torch.equal(batch[name], want[name]) for name in ("tokens", "labels", "loss_mask"))


def test_batch_does_not_share_memory_with_the_host() -> None:
    host = make_host([[4]], 9)
    batch = collated(host)
    before = batch["tokens"].tolist()
    host.tokens[:] = 0
    assert batch["tokens"].tolist() == before


def test_changing_a_tensor_in_place_changes_no_other() -> None:
    host = make_host([[4, 3], [5]], 9, mask_seed=1)
    names = [name for name in collated(host, attention_mask=True) if name != "max_seqlen"]
    for changed in names:
        batch, before = collated(host, attention_mask=True), collated(host, attention_mask=True)
        versions = {name: batch[name]._version for name in names if name != changed}
        batch[changed].zero_()
        assert all(torch.equal(batch[name], before[name]) for name in names if name != changed)
        # Autograd refuses to go back through a tensor whose version moved since the forward pass.
        assert versions == {name: batch[name]._version for name in names if name != changed}


def test_threads_of_torch_are_left_alone() -> None:
    before = torch.get_num_threads(), torch.get_num_interop_threads()
    collated(make_host([[4]], 9))
    assert (torch.get_num_threads(), torch.get_num_interop_threads()) == before


@pytest.mark.gpu
def test_cuda_equals_cpu_to_the_last_bit() -> None:
    device = resolve_device("cuda")
    options = {"mask_boundary": True, "reset_position_ids": True, "attention_mask": True, "align": 4}
    collator = Collator(device=device, **options)  # type: ignore[arg-type]
    # More batches than buffers, and sizes that grow and shrink.
    for number in range(9):
        host = make_host([[5 * number, 17, 30], [], [64]], 65 + 8 * (number % 3), align=4, mask_seed=number)
        there = collator.hand_over(collator.build(host))
        here = collate(host, device=CPU, **options)  # type: ignore[arg-type]
        assert there["tokens"].device == device
        for name, value in here.items():
            assert name == "max_seqlen" or torch.equal(there[name].cpu(), value), name
        assert there["max_seqlen"] == here["max_seqlen"]


def test_auto_is_a_device_that_exists() -> None:
    assert resolve_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert resolve_device("cpu") == CPU


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cpu:0", "auto:1", "cuda:", "", "mps"])
def test_unknown_device_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="set auto, cpu, cuda or cuda:N"):
        resolve_device(name)


def test_missing_device_is_refused() -> None:
    with pytest.raises(ConfigError, match="torch sees"):
        resolve_device("cuda:99")
