"""The tokens stage: ids come through unchanged, whatever form they have; others are bad samples."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage_runs import PLACE, masks_of, run, sample, tokens_of

from zephon.config import Tokenizer
from zephon.errors import ConfigError
from zephon.stages import stage_config, stage_fields, stage_plan
from zephon.tokenizer import LoadedTokenizer

LIMIT = 1 << 31
IDS = st.lists(st.integers(0, LIMIT - 1), max_size=20)


def npy(values: Any, dtype: str = "int64") -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(values, dtype=dtype))
    return file.getvalue()


def raw(field: str = "ids", **more: Any) -> dict[str, Any]:
    return {"kind": "tokens", "field": field, **more}


@given(batch=st.lists(IDS, max_size=5))
def test_ids_come_through_in_every_form(batch: list[list[int]]) -> None:
    expected = [ids for ids in batch if ids]
    counts = [int(bool(ids)) for ids in batch]
    for form in (list, tuple, lambda ids: np.array(ids, dtype=np.uint32), npy, lambda ids: npy(ids, ">u4")):
        documents = run(raw(), [sample(ids=form(ids)) for ids in batch], None)
        assert (tokens_of(documents), documents.counts.tolist()) == (expected, counts)
    for dtype in ("uint32", "int32", "uint64", "int64"):
        binary = [sample(ids=np.array(ids, dtype=f"<{np.dtype(dtype).str[1:]}").tobytes()) for ids in batch]
        assert tokens_of(run(raw(dtype=dtype), binary, None)) == expected


@given(batch=st.lists(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 1)), max_size=9), max_size=5))
def test_masks_come_through_in_every_form(batch: list[list[tuple[int, int]]]) -> None:
    expected = [[flag for _, flag in pairs] for pairs in batch if pairs]
    for form in (list, npy, lambda m: [bool(flag) for flag in m], lambda m: np.array(m, dtype=np.bool_)):
        samples = [sample(ids=[i for i, _ in pairs], mask=form([m for _, m in pairs])) for pairs in batch]
        assert masks_of(run(raw(mask_field="mask"), samples, None)) == expected
    binary = [
        sample(ids=np.array([i for i, _ in pairs], dtype="<u2").tobytes(), mask=bytes(m for _, m in pairs))
        for pairs in batch
    ]
    assert masks_of(run(raw(mask_field="mask", dtype="uint16"), binary, None)) == expected


def test_raw_binary_that_looks_like_an_npy_file_is_raw() -> None:
    content = npy([1, 2, 3])
    assert len(content) % 2 == 0
    ((tokens),) = tokens_of(run(raw(dtype="uint16"), [sample(ids=content)], None))
    assert tokens == np.frombuffer(content, "<u2").tolist()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "'ids' is of type NoneType, not a list of integers"),
        ("1 2", "'ids' is of type str, not a list of integers"),
        (7, "'ids' is of type int"),
        ([1.5, 2], "'ids' is float64 of shape (2,), not a row of integers"),
        ([[1, 2], [3, 4]], "'ids' is int64 of shape (2, 2), not a row of integers"),
        ([[1], [2, 3]], "'ids' isn't a list of integers: "),
        ([1, None], "'ids' is object of shape (2,)"),
        (["a"], "not a row of integers"),
        ([2**64], "not a row of integers"),
        ([True, False], "'ids' holds booleans, not token ids"),
        ([1, -1], "'ids' has the id -1, outside 0..2147483647"),
        ([2**31], "'ids' has the id 2147483648, outside 0..2147483647"),
        (np.array([2**63], dtype=np.uint64), "'ids' has the id 9223372036854775808, outside"),
        (np.zeros((2, 2), dtype=np.int32), "of shape (2, 2)"),
        (b"abc", "'ids' isn't an .npy file (set the stage's dtype for raw binary): "),
        (b"", "'ids' isn't an .npy file"),
        (npy([1.5], "float32"), "'ids' is float32 of shape (1,)"),
        (npy([1, 2])[:-3], "'ids' isn't an .npy file"),
        (npy([[1]]), "of shape (1, 1)"),
        (npy([3])[:20] + b"\xff" * 40, "'ids' isn't an .npy file"),
    ],
)
def test_what_is_no_row_of_ids_is_bad(value: Any, message: str) -> None:
    documents = run(raw(), [sample(ids=[5]), sample(ids=value), sample(ids=[6])], None)
    ((number, said),) = documents.bad
    assert number == 1
    assert message in said
    assert tokens_of(documents) == [[5], [6]]


def test_pickled_arrays_are_never_loaded() -> None:
    file = io.BytesIO()
    np.save(file, np.array([print], dtype=object), allow_pickle=True)
    ((_, message),) = run(raw(), [sample(ids=file.getvalue())], None).bad
    assert "'ids' isn't an .npy file" in message


def test_raw_binary_of_a_wrong_length_is_bad() -> None:
    ((_, message),) = run(raw(dtype="uint32"), [sample(ids=b"abcde")], None).bad
    assert message.startswith("'ids' isn't an array of uint32: ")


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ([1], "'mask' has 1 values for 2 tokens"),
        ([0, 2], "'mask' has values other than 0 and 1"),
        ([-1, 0], "'mask' has values other than 0 and 1"),
        ([0.5, 1], "not a row of integers"),
        (None, "'mask' is of type NoneType"),
    ],
)
def test_a_mask_that_does_not_fit_is_bad(mask: Any, message: str) -> None:
    documents = run(raw(mask_field="mask"), [sample(ids=[1, 2], mask=mask), sample(ids=[3], mask=[0])], None)
    ((number, said),) = documents.bad
    assert (number, message in said) == (0, True)
    assert (tokens_of(documents), masks_of(documents)) == ([[3]], [[0]])


def test_a_missing_mask_names_its_setting() -> None:
    ((_, message),) = run(raw(mask_field="mask"), [sample(ids=[1])], None).bad
    assert message == f"no member 'mask' (has: 'ids'); set {PLACE}.mask_field to one of these"


def test_ids_are_held_against_the_tokenizer(tokenizer: LoadedTokenizer) -> None:
    size = tokenizer.vocab_size
    documents = run(raw(), [sample(ids=[size - 1]), sample(ids=[size])], tokenizer)
    assert documents.bad == ((1, f"'ids' has the id {size}, outside 0..{size - 1}; set the tokenizer that made them"),)


def test_eos_follows_each_document_and_is_learned(tokenizer: LoadedTokenizer) -> None:
    samples = [sample(ids=[1, 2], mask=[0, 0]), sample(ids=[], mask=[]), sample(ids=[3], mask=[0])]
    documents = run(raw(mask_field="mask", eos=True), samples, tokenizer)
    assert tokens_of(documents) == [[1, 2, tokenizer.eos_id], [3, tokenizer.eos_id]]
    assert masks_of(documents) == [[0, 0, 1], [0, 1]]
    with pytest.raises(ConfigError, match="no tokenizer is set"):
        run(raw(eos=True), [], None)


def test_json_lists_keep_their_ids() -> None:
    ids = [0, 1, 127, 128, 65535, LIMIT - 1]
    assert tokens_of(run(raw(), [sample(ids=json.loads(json.dumps(ids)))], None)) == [ids]


def test_a_page_has_a_mask_by_its_settings_alone() -> None:
    assert run(raw(mask_field="mask"), [sample()], None).mask is not None
    assert run(raw(), [sample(ids=[1], mask=[1])], None).mask is None


def test_settings() -> None:
    config = stage_config(raw(mask_field="mask"), place=PLACE)
    assert stage_fields(config) == ("ids", "mask")
    assert stage_plan(config, None) == raw(mask_field="mask", dtype=None, eos=False)
    with pytest.raises(ConfigError, match=r"needs tokenizer\.eos"):
        stage_plan(stage_config(raw(eos=True), place=PLACE), Tokenizer(path="t.json"))
    with pytest.raises(ConfigError, match="Invalid enum value 'float32'"):
        stage_config(raw(dtype="float32"), place=PLACE)
