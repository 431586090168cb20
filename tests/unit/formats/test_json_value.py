"""JSON: what nests too deep is refused by its text alone, whoever asks."""

from __future__ import annotations

import inspect
import json
import sys
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zephon.formats.json_value import MAX_NESTING, json_value
from zephon.stages.chat import read_json
from zephon.stages.fields import BadSampleError

DECODER: msgspec.json.Decoder[object] = msgspec.json.Decoder()
VALUES = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(alphabet='[]{}"\\aü\n', max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet='[{"\\', max_size=4), inner, max_size=4)
    ),
    max_leaves=60,
)


def nested(depth: int, *, of: str = "[") -> str:
    return of * depth + "0" + {"[": "]", '{"a":': "}"}[of] * depth


def refused(text: bytes | str) -> bool:
    try:
        json_value(text, DECODER)
    except msgspec.DecodeError as error:
        return "nests more than" in str(error)
    return False


@given(VALUES, st.integers(0, 150), st.booleans())
def test_what_nests_little_enough_is_what_json_says(value: Any, depth: int, ascii_only: bool) -> None:
    # Brackets in strings don't nest; these alone would be too many.
    wide = ["[" * 200, value]
    text = json.dumps(wide, ensure_ascii=ascii_only)
    assert json_value(text, DECODER) == json_value(text.encode(), DECODER) == wide
    text = "[" * depth + text + "]" * depth
    assert refused(text) == refused(text.encode()) == (depth + nesting(wide) > MAX_NESTING)


def nesting(value: Any) -> int:
    if isinstance(value, list | dict):
        return 1 + max(map(nesting, value.values() if isinstance(value, dict) else value), default=0)
    return 0


def deeper(frames: int, text: str) -> bool:
    """Return what `refused` does, called from so many frames further down."""
    return deeper(frames - 1, text) if frames else refused(text)


@pytest.mark.parametrize("of", ["[", '{"a":'])
def test_the_bound_does_not_depend_on_the_caller_s_stack(of: str) -> None:
    used = len(inspect.stack(0))
    room = sys.getrecursionlimit() - used - 2 * MAX_NESTING
    for frames in (0, room // 2, room):
        assert not deeper(frames, nested(MAX_NESTING, of=of))
        assert deeper(frames, nested(MAX_NESTING + 1, of=of))
        assert deeper(frames, nested(1_000_000, of=of))


def test_a_hostile_text_takes_no_more_than_linear_time() -> None:
    began = time.process_time()
    for text in (b"[" * 200 + b'"' + b'\\"' * 500_000, b"[" * 200 + b'"\\' * 500_000, b'"[' * 500_000):
        with pytest.raises(msgspec.DecodeError):
            json_value(text, DECODER)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("text", [b"", b"[", b'["', b'["\\', b"[1] 2", b"\xff", b"[" * 127])
def test_what_is_no_json_is_an_error_of_the_decoder(text: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        json_value(text, DECODER)
    assert not refused(text)


def test_a_field_that_nests_too_deep_makes_a_bad_sample() -> None:
    for value in (nested(100_000), nested(100_000).encode()):
        with pytest.raises(BadSampleError, match=r"^'m' isn't JSON: it nests more than 128 lists and objects$"):
            read_json(value, "m")
