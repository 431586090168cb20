"""`auto` begins with the engine that is soon there; the switch to the fast one has no effect on ids."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np
import pytest

from zephon.errors import ConfigError, DataError
from zephon.tokenizer.engines import Encoded
from zephon.tokenizer.switch import Switch


def by_character(texts: Sequence[str]) -> Encoded:
    lengths = np.array([0, *map(len, texts)], dtype=np.int64)
    return np.array([ord(char) for text in texts for char in text], dtype=np.uint32), np.cumsum(lengths)


def equal(first: Encoded, second: Encoded) -> bool:
    return all(np.array_equal(mine, theirs) for mine, theirs in zip(first, second, strict=True))


class Counted:
    """The reference's ids, but others for `wrong`, and how often they were asked for."""

    def __init__(self, wrong: str = "") -> None:
        self.wrong = wrong
        self.calls = 0

    def __call__(self, texts: Sequence[str]) -> Encoded:
        self.calls += 1
        tokens, offsets = by_character(texts)
        return (tokens + 1 if self.wrong in texts else tokens), offsets


def test_little_text_never_loads_the_fast_engine() -> None:
    def never(_: object) -> None:
        raise AssertionError("loaded")

    encode = Switch(by_character, never, path="x", switch_chars=100)
    for _ in range(10):
        assert equal(encode(["ten chars."]), by_character(["ten chars."]))
    assert not encode.switched


def test_after_enough_text_the_fast_engine_runs() -> None:
    fast = Counted()
    encode = Switch(by_character, lambda _: fast, path="x", switch_chars=20)
    for _ in range(2):
        assert equal(encode(["ten chars."]), by_character(["ten chars."]))
        assert not encode.switched
    assert equal(encode(["more"]), by_character(["more"]))
    assert encode.switched
    # The two texts from before once more, and this one.
    assert fast.calls == 3


def test_without_a_fast_engine_the_reference_goes_on_and_is_asked_once() -> None:
    asked = []
    encode = Switch(by_character, lambda reference: asked.append(reference), path="x", switch_chars=1)
    for text in ("a", "b", "c", "d"):
        assert equal(encode([text]), by_character([text]))
    assert asked == [by_character]
    assert not encode.switched


def test_a_difference_in_what_was_given_out_is_an_error_from_then_on() -> None:
    encode = Switch(by_character, lambda _: Counted(wrong="odd"), path="a/tokenizer.json", switch_chars=1)
    encode(["same", "odd"])
    for _ in range(2):
        with pytest.raises(
            ConfigError, match=r"for 'same' with 'a/tokenizer\.json'; set tokenizer\.engine: hf"
        ) as caught:
            encode(["same"])
        assert "\n" not in str(caught.value)


def test_what_the_reference_cannot_encode_counts_for_nothing() -> None:
    def strict(texts: Sequence[str]) -> Encoded:
        if "bad" in texts:
            raise DataError("bad")
        return by_character(texts)

    encode = Switch(strict, lambda _: strict, path="x", switch_chars=3)
    for _ in range(3):
        with pytest.raises(DataError):
            encode(["bad"])
    assert not encode.switched


def test_others_go_on_while_one_loads_and_are_compared_too() -> None:
    loading, go_on = threading.Event(), threading.Event()

    def load(_: object) -> Counted:
        loading.set()
        assert go_on.wait(10)
        return Counted(wrong="odd")

    encode = Switch(by_character, load, path="x", switch_chars=1)
    encode(["fine"])
    errors: list[Exception] = []

    def first() -> None:
        try:
            encode(["fine too"])
        except ConfigError as error:
            errors.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    assert loading.wait(10)
    assert equal(encode(["odd"]), by_character(["odd"]))
    go_on.set()
    thread.join()
    assert [str(error) for error in errors] == [
        "tokenizer.engine=auto: fastokens gives other ids than Hugging Face's engine for 'odd' with 'x'; "
        "set tokenizer.engine: hf"
    ]
