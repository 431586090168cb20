"""The text stage: a batch is its samples one by one, and a bad sample harms no other."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stage_runs import PLACE, decode, encode, random_of, run, sample, tokens_of
from tokenizers import Tokenizer as HfTokenizer
from tokenizers import models, normalizers, pre_tokenizers

from zephon.config import Tokenizer
from zephon.errors import ConfigError
from zephon.formats.sample import Sample
from zephon.stages import stage_config, stage_fields, stage_metadata, stage_plan
from zephon.tokenizer import LoadedTokenizer, load_tokenizer

FIM = {"rate": 1.0, "spm_rate": 0.5}


def naive(text: str, tokenizer: LoadedTokenizer, *, bos: bool, eos: bool) -> list[int]:
    return [tokenizer.bos_id] * bos + encode(tokenizer, text) + [tokenizer.eos_id] * eos


@settings(max_examples=200)
@given(
    texts=st.lists(st.one_of(st.none(), st.just(b"\xff"), st.text(max_size=40)), max_size=8),
    bos=st.booleans(),
    eos=st.booleans(),
)
def test_a_batch_is_its_samples_one_by_one(
    tokenizer: LoadedTokenizer, texts: list[str | bytes | None], bos: bool, eos: bool
) -> None:
    samples = [sample() if text is None else sample(txt=text) for text in texts]
    documents = run({"bos": bos, "eos": eos}, samples, tokenizer)
    good = [text if isinstance(text, str) else "" for text in texts]
    assert tokens_of(documents) == [naive(text, tokenizer, bos=bos, eos=eos) for text in good if text]
    assert documents.counts.tolist() == [int(bool(text)) for text in good]
    assert [number for number, _ in documents.bad] == [n for n, text in enumerate(texts) if not isinstance(text, str)]
    assert (documents.mask, documents.meta) == (None, None)


def test_bytes_and_strings_give_the_same_tokens(tokenizer: LoadedTokenizer) -> None:
    text = "Wörter, 日本語 and\r\n  spaces\u00a0"
    documents = run({}, [sample(txt=text), sample(txt=text.encode())], tokenizer)
    assert tokens_of(documents)[0] == tokens_of(documents)[1]


def test_a_missing_member_is_named_with_those_there(tokenizer: LoadedTokenizer) -> None:
    documents = run({}, [sample(jpg=b"", json=b"{}"), sample(txt="a"), sample()], tokenizer)
    assert documents.bad == (
        (0, f"no member 'txt' (has: 'jpg', 'json'); set {PLACE}.field to one of these"),
        (2, f"no member 'txt' (has: nothing); set {PLACE}.field"),
    )
    assert documents.counts.tolist() == [0, 1, 0]


def test_names_with_dots_that_fell_together(tokenizer: LoadedTokenizer) -> None:
    fields = {f"{number:03d}.txt": b"a" for number in range(30)}
    ((_, message),) = run({}, [Sample("IMG_1", fields)], tokenizer).bad
    assert message.startswith("no member 'txt' (has: '000.txt', '001.txt', ")
    assert "'011.txt', … 30 in all): a sample's name ends at the first dot" in message
    assert len(message) < 400


@pytest.mark.parametrize("value", [3, None, ["a"], {"a": 1}, 2.5])
def test_a_field_of_another_type_is_bad(tokenizer: LoadedTokenizer, value: object) -> None:
    ((_, message),) = run({}, [sample(txt=value)], tokenizer).bad
    assert message == f"'txt' is of type {type(value).__name__}, not text"


def test_what_the_reader_found_bad_is_bad(tokenizer: LoadedTokenizer) -> None:
    documents = run({}, [sample(error="invalid JSON", txt="a"), sample(txt="b")], tokenizer)
    assert documents.bad == ((0, "invalid JSON"),)
    assert documents.counts.tolist() == [0, 1]


@pytest.mark.parametrize("broken", [b"ab\xffcd", f"ab{chr(0xD800)}cd", f"ab{chr(0xDC00)}cd"])
def test_what_is_not_unicode_goes_by_the_rule(tokenizer: LoadedTokenizer, broken: str | bytes) -> None:
    ((_, message),) = run({}, [sample(txt=broken)], tokenizer).bad
    assert " 2" in message
    assert "errors to replace or ignore" in message
    replaced = tokens_of(run({"errors": "replace"}, [sample(txt=broken)], tokenizer))
    assert replaced == [naive("ab\ufffdcd", tokenizer, bos=False, eos=True)]
    ignored = tokens_of(run({"errors": "ignore"}, [sample(txt=broken)], tokenizer))
    assert ignored == [naive("abcd", tokenizer, bos=False, eos=True)]


def test_text_without_tokens_gives_no_document(tmp_path: Path) -> None:
    silent = HfTokenizer(models.WordLevel({"a": 0, "[EOS]": 1}))
    silent.normalizer = normalizers.Strip()
    silent.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    silent.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(Tokenizer(path=str(tmp_path), eos="[EOS]"))
    documents = run({}, [sample(txt="  "), sample(txt="a a"), sample(txt=""), sample(txt="a")], tokenizer)
    assert tokens_of(documents) == [[0, 0, 1], [0, 1]]
    assert documents.counts.tolist() == [0, 1, 0, 1]
    assert documents.bad == ()
    # A text that can't be encoded is found among the others, which go on.
    documents = run({}, [sample(txt="a"), sample(txt="unknown"), sample(txt="a a")], tokenizer)
    assert tokens_of(documents) == [[0, 1], [0, 0, 1]]
    ((number, message),) = documents.bad
    assert (number, "can't encode a text" in message) == (1, True)


def test_no_samples_give_no_documents(tokenizer: LoadedTokenizer) -> None:
    for raw in ({}, {"fim": FIM}):
        assert tokens_of(run(raw, [], tokenizer)) == []
        assert tokens_of(run(raw, [sample(), sample(txt="")], tokenizer)) == []


def test_large_batches_keep_their_order(tokenizer: LoadedTokenizer) -> None:
    texts = [f"text number {number} " * (number % 7) for number in range(500)]
    documents = run({"bos": True}, [sample(txt=text) for text in texts], tokenizer)
    assert tokens_of(documents) == [naive(text, tokenizer, bos=True, eos=True) for text in texts if text]


# Fill-in-the-middle.


def parts_of(tokens: list[int], tokenizer: LoadedTokenizer, path: str) -> tuple[str, str, str, str]:
    """Return (kind, prefix, middle, suffix) of a cut document, read back from its tokens."""
    pre, suf, mid = (tokenizer.token_id(f"<|fim_{name}|>", place="") for name in ("prefix", "suffix", "middle"))
    assert (tokens[0], tokens[-1]) == (pre, tokenizer.eos_id)
    at_suffix, at_middle = tokens.index(suf), tokens.index(mid)
    first = decode(path, tokens[1:at_suffix])
    second = decode(path, tokens[at_suffix + 1 : at_middle])
    third = decode(path, tokens[at_middle + 1 : -1])
    return ("spm", "", third, second) if at_suffix == 1 else ("psm", first, third, second)


def test_the_parts_reassemble_to_the_text(tokenizer: LoadedTokenizer, tokenizer_config: Tokenizer) -> None:
    texts = [f"def function_{number}(x):\n    return x * {number}\n" for number in range(40)]
    samples = [sample(txt=text) for text in texts]
    documents = tokens_of(run({"fim": {"rate": 1, "spm_rate": 0.5}}, samples, tokenizer))
    kinds = set()
    for text, tokens in zip(texts, documents, strict=True):
        kind, prefix, middle, suffix = parts_of(tokens, tokenizer, tokenizer_config.path)
        # SPM writes prefix and middle behind one another; either way the text comes back whole.
        assert prefix + middle + suffix == text
        kinds.add(kind)
    assert kinds == {"psm", "spm"}


def test_a_cut_depends_on_the_sample_alone(tokenizer: LoadedTokenizer) -> None:
    samples = [sample(txt=f"some text to be cut, number {number}") for number in range(12)]
    together = tokens_of(run({"fim": FIM}, samples, tokenizer))
    stage = stage_config({"fim": FIM}, place=PLACE).build(tokenizer, place=PLACE)
    for number, one in enumerate(samples):
        alone = stage.documents([one], lambda _, number=number: random_of(number))
        assert tokens_of(alone) == [together[number]]


def test_the_rate_is_kept_and_zero_leaves_text_whole(tokenizer: LoadedTokenizer) -> None:
    samples = [sample(txt="abc def ghi") for _ in range(400)]
    whole = naive("abc def ghi", tokenizer, bos=False, eos=True)
    assert tokens_of(run({"fim": {"rate": 0}}, samples, tokenizer)) == [whole] * 400
    cut = sum(tokens != whole for tokens in tokens_of(run({"fim": {"rate": 0.25}}, samples, tokenizer)))
    assert 60 < cut < 140


def test_fim_needs_its_tokens(tokenizer: LoadedTokenizer) -> None:
    with pytest.raises(ConfigError, match=rf"{PLACE}\.fim\.prefix='<PRE>' is no token of"):
        run({"fim": {"prefix": "<PRE>"}}, [], tokenizer)


# Settings.


def test_settings_are_checked_with_their_place() -> None:
    for raw, message in (
        ({"kind": "text", "fild": "a"}, r"sources\.web\.stage \(text\).*unknown field `fild`; its fields: field, eos"),
        ({"field": 3}, r"sources\.web\.stage \(text\): Expected `str`, got `int` - at `\$\.field`"),
        ({"errors": "loose"}, r"Invalid enum value 'loose'"),
        ({"fim": {"rate": 1.5}}, r"rate"),
        ({"kind": "tekst"}, r"sources\.web\.stage\.kind: unknown kind 'tekst'; known: text, tokens, chat, function"),
        ({"kind": "no_such_module:Thing"}, r"sources\.web\.stage\.kind: can't import"),
        ({"kind": "zephon.hashing:key"}, r"is no struct of a stage's settings"),
        ({"kind": 3}, r"sources\.web\.stage\.kind=3"),
    ):
        with pytest.raises(ConfigError, match=message) as caught:
            stage_config(raw, place=PLACE)
        assert "\n" not in str(caught.value)


def test_the_plan_has_every_setting_and_its_default() -> None:
    config = stage_config({}, place=PLACE)
    plan = {"kind": "text", "field": "txt", "eos": True, "bos": False, "errors": "strict", "fim": None}
    assert stage_plan(config, Tokenizer(path="t.json", eos="e")) == plan
    assert (stage_fields(config), stage_metadata(config)) == (("txt",), ())
    fim = stage_plan(stage_config({"fim": {"rate": 0.3}}, place=PLACE), Tokenizer(path="t.json", eos="e"))["fim"]
    assert fim == {
        "rate": 0.3,
        "spm_rate": 0.5,
        "prefix": "<|fim_prefix|>",
        "suffix": "<|fim_suffix|>",
        "middle": "<|fim_middle|>",
    }


def test_what_the_tokenizer_lacks_is_said_before_any_work(tokenizer_config: Tokenizer) -> None:
    config = stage_config({}, place=PLACE)
    with pytest.raises(ConfigError, match=r"a stage of kind text needs tokenizer\.path"):
        stage_plan(config, None)
    with pytest.raises(ConfigError, match=r"needs tokenizer\.eos, which isn't set; set it, or eos: false in the stage"):
        stage_plan(config, Tokenizer(path=tokenizer_config.path))
    with pytest.raises(ConfigError, match=r"sources\.web\.stage turns text into tokens, but no tokenizer is set"):
        run({}, [], None)
    bare = load_tokenizer(Tokenizer(path=tokenizer_config.path))
    with pytest.raises(ConfigError, match=r"sources\.web\.stage\.eos is true, but tokenizer\.eos isn't set"):
        run({}, [], bare)
    assert tokens_of(run({"eos": False}, [sample(txt="hello")], bare)) == [encode(bare, "hello")]


def test_a_stage_of_ones_own_is_named_by_module(tokenizer: LoadedTokenizer) -> None:
    raw = {"kind": "zephon.stages.text:TextStage", "field": "body"}
    assert tokens_of(run(raw, [sample(body="hi")], tokenizer)) == [naive("hi", tokenizer, bos=False, eos=True)]
