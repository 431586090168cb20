"""The function stage: what a function returns becomes documents; what it raises harms its sample alone."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from stage_runs import PLACE, encode, masks_of, run, sample, tokens_of

from zephon.config import Tokenizer
from zephon.errors import ConfigError, StoreError
from zephon.stages import stage_config, stage_fields, stage_metadata, stage_plan
from zephon.stages.document import Document
from zephon.tokenizer import LoadedTokenizer, load_tokenizer


def raw(name: str, **more: Any) -> dict[str, Any]:
    return {"kind": "function", "function": f"stage_functions:{name}", **more}


def test_returning_the_text_is_the_text_stage(tokenizer: LoadedTokenizer) -> None:
    samples = [sample(txt=text) for text in ("hello world", "", "日本語", "it's")]
    function, text = run(raw("text"), samples, tokenizer), run({}, samples, tokenizer)
    assert tokens_of(function) == tokens_of(text)
    assert function.counts.tolist() == text.counts.tolist() == [1, 0, 1, 1]


def test_every_form_of_return_is_understood(tokenizer: LoadedTokenizer) -> None:
    eos = tokenizer.eos_id
    hello = [*encode(tokenizer, "hello"), eos]
    cases: list[tuple[Any, list[list[int]]]] = [
        (None, []),
        ("", []),
        ("hello", [hello]),
        (np.array([4, 5]), [[4, 5]]),
        (np.array([], dtype=np.int64), []),
        (Document(text="hello"), [hello]),
        (Document(tokens=[6, 7]), [[6, 7]]),
        ([], []),
        (["hello", "", np.array([1]), Document(tokens=[2]), "hello"], [hello, [1], [2], hello]),
        (("hello",), [hello]),
    ]
    documents = run(raw("give"), [sample(give=value) for value, _ in cases], tokenizer)
    assert documents.bad == ()
    assert tokens_of(documents) == [tokens for _, expected in cases for tokens in expected]
    assert documents.counts.tolist() == [len(expected) for _, expected in cases]
    assert documents.mask is None


def test_eos_may_be_left_to_the_function(tokenizer: LoadedTokenizer) -> None:
    documents = run(raw("text", eos=False), [sample(txt="hello")], tokenizer)
    assert tokens_of(documents) == [encode(tokenizer, "hello")]


def test_a_batch_is_its_samples_one_by_one(tokenizer: LoadedTokenizer) -> None:
    samples = [sample(txt="one two three"), sample(txt=""), sample(txt=3), sample(txt="four five")]
    together = run(raw("words"), samples, tokenizer)
    alone = [run(raw("words"), [one], tokenizer) for one in samples]
    assert tokens_of(together) == [tokens for documents in alone for tokens in tokens_of(documents)]
    assert together.counts.tolist() == [3, 0, 0, 2]
    assert [number for number, _ in together.bad] == [2]


def test_options_key_and_chance_reach_the_function(tokenizer: LoadedTokenizer) -> None:
    samples = [sample(txt="a bb ccc", key="x/1"), sample(txt="a b c d e f g h", key="x/2")]
    assert run(raw("words", options={"minimum": 2}), samples, tokenizer).counts.tolist() == [2, 0]
    named = tokens_of(run(raw("key_and_names", eos=False), samples, tokenizer))
    assert named == [encode(tokenizer, "__key__,txt:x/1"), encode(tokenizer, "__key__,txt:x/2")]
    first, again = (tokens_of(run(raw("shuffled"), samples, tokenizer)) for _ in range(2))
    assert first == again
    assert first[1] != tokens_of(run(raw("text"), samples, tokenizer))[1]


def test_metadata_and_masks_go_with_their_documents(tokenizer: LoadedTokenizer) -> None:
    settings = raw("grouped", metadata=["group", "cost"], mask=True)
    documents = run(settings, [sample(), sample()], tokenizer)
    even = [*encode(tokenizer, "even"), tokenizer.eos_id]
    assert tokens_of(documents) == [even, [1, 2, 3]] * 2
    assert masks_of(documents) == [[1] * len(even), [0, 1, 0]] * 2
    assert documents.meta is not None
    assert documents.meta.tolist() == [[0, 5], [-1, 7]] * 2
    config = stage_config(settings, place=PLACE)
    assert stage_metadata(config) == ("group", "cost")
    none = run(settings, [], tokenizer)
    assert none.meta is not None
    assert none.meta.shape == (0, 2)
    assert none.mask is not None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "the function returned a int; it must return None, a string, a NumPy array"),
        ([1, 2, 3], "the function returned a int; it must return"),
        (b"abc", "the function returned a bytes"),
        ([["a"]], "the function returned a list"),
        (Document(), "without, or with both of, text and tokens"),
        (Document(text="a", tokens=[1]), "without, or with both of, text and tokens"),
        (Document(text=5), "a Document whose text is a int"),
        (Document(text="a", mask=[1]), "a mask for its text; give its tokens instead"),
        (Document(tokens=[1], mask=[1]), "its stage declares none; set the stage's mask: true"),
        (Document(tokens=[-1]), "'tokens' has the id -1, outside"),
        (Document(tokens="ab"), "'tokens' is of type str"),
        (np.array([[1]]), "'tokens' is int64 of shape (1, 1)"),
        (np.array([0.5]), "'tokens' is float64"),
        (chr(0xDFFF), "half a surrogate pair"),
        (Document(text="a", metadata={"group": 1}), "returned metadata 'group'; name it in the stage's metadata"),
    ],
)
def test_any_other_return_is_a_bad_sample(tokenizer: LoadedTokenizer, value: Any, message: str) -> None:
    documents = run(raw("give"), [sample(give="hello"), sample(give=value)], tokenizer)
    ((number, said),) = documents.bad
    assert number == 1
    assert message in said
    assert documents.counts.tolist() == [1, 0]


@pytest.mark.parametrize("value", [None, "1", 1.0, True, 2**63])
def test_metadata_must_be_there_and_an_integer(tokenizer: LoadedTokenizer, value: Any) -> None:
    metadata = {} if value is None else {"group": value}
    give = sample(give=Document(text="a", metadata=metadata))
    ((_, message),) = run(raw("give", metadata=["group"]), [give], tokenizer).bad
    assert f"metadata group={value!r}; it must be an integer" in message
    ((_, message),) = run(raw("give", metadata=["group"]), [sample(give="plain")], tokenizer).bad
    assert "metadata group=None" in message


def test_a_mask_must_fit(tokenizer: LoadedTokenizer) -> None:
    for mask, message in (([1], "'mask' has 1 values for 2 tokens"), ([2, 0], "values other than 0 and 1")):
        give = sample(give=Document(tokens=[1, 2], mask=mask))
        ((_, said),) = run(raw("give", mask=True), [give], tokenizer).bad
        assert message in said


def test_one_bad_document_takes_its_sample_and_no_other(tokenizer: LoadedTokenizer) -> None:
    samples = [sample(give=["a", 3, "b"]), sample(give=["a", "b"])]
    documents = run(raw("give"), samples, tokenizer)
    assert documents.counts.tolist() == [0, 2]


def test_what_a_function_raises_is_a_bad_sample(tokenizer: LoadedTokenizer) -> None:
    texts = ["fine", "value", "image", "fine"]
    documents = run(raw("fails"), [sample(txt=text) for text in texts], tokenizer)
    assert documents.bad == (
        (1, "stage_functions:fails raised ValueError: two lines"),
        (2, "stage_functions:fails raised OSError: image file is truncated"),
    )
    assert documents.counts.tolist() == [1, 0, 0, 1]


@pytest.mark.parametrize("text", ["disk", "memory", "store"])
def test_a_failure_of_the_machine_is_never_a_bad_sample(tokenizer: LoadedTokenizer, text: str) -> None:
    with pytest.raises(StoreError) as caught:
        run(raw("fails"), [sample(txt=text, key="x/1")], tokenizer)
    assert isinstance(pickle.loads(pickle.dumps(caught.value)), StoreError)
    if text != "store":
        assert f"({PLACE}, key 'x/1')" in str(caught.value)


def test_the_reader_s_error_is_reported_and_the_function_not_called(tokenizer: LoadedTokenizer) -> None:
    assert run(raw("fails"), [sample(error="damaged", txt="disk")], tokenizer).bad == ((0, "damaged"),)


def test_without_a_tokenizer_tokens_will_do_but_not_text(tokenizer_config: Tokenizer) -> None:
    assert tokens_of(run(raw("give"), [sample(give=np.array([1, 2]))], None)) == [[1, 2]]
    with pytest.raises(ConfigError, match=r"sources\.web\.stage turns text into tokens, but no tokenizer is set"):
        run(raw("give"), [sample(give="text")], None)
    with pytest.raises(ConfigError, match=r"stage\.eos is true, but tokenizer\.eos isn't set"):
        run(raw("give"), [], load_tokenizer(Tokenizer(path=tokenizer_config.path)))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("stage_functions", r"function='stage_functions' has not the form module:function"),
        (":text", "has not the form module:function"),
        ("no_such_module:text", r"can't import 'no_such_module:text': ModuleNotFoundError: .*PYTHONPATH"),
        ("stage_functions:nothing", r"can't import 'stage_functions:nothing': AttributeError"),
        ("stage_functions:NOT_A_FUNCTION", r"is of type int, not a function"),
    ],
)
def test_a_function_that_is_none_is_refused(tokenizer: LoadedTokenizer, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        run({"kind": "function", "function": name}, [], tokenizer)
    assert str(caught.value).startswith(f"{PLACE}.function")


def test_the_plan_has_function_version_and_options() -> None:
    config = stage_config(raw("words", version="2", options={"minimum": 2}, columns=["txt"]), place=PLACE)
    assert stage_plan(config, None) == {
        "kind": "function",
        "function": "stage_functions:words",
        "version": "2",
        "options": {"minimum": 2},
        "columns": ["txt"],
        "metadata": [],
        "mask": False,
        "eos": True,
    }
    assert stage_fields(config) == ("txt",)
    assert stage_fields(stage_config(raw("words"), place=PLACE)) is None
    with pytest.raises(ConfigError, match="missing required field `function`"):
        stage_config({"kind": "function"}, place=PLACE)
