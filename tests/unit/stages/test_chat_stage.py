"""The chat stage: the text is the template's, and exactly the assistant's tokens are learned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stage_runs import PLACE, decode, encode, masks_of, run, sample, tokens_of

from zephon.config import Tokenizer
from zephon.errors import ConfigError
from zephon.stages import stage_config, stage_fields, stage_plan
from zephon.stages.template import CHATML
from zephon.tokenizer import LoadedTokenizer, load_tokenizer

# As ChatML, but told by nothing but what the messages add (no generation block).
UNMARKED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Turns end with a line, without a token of their own.
PLAIN = (
    "{% for m in messages %}{{ m.role | upper }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT: {% endif %}"
)
# Drops what an earlier turn thought once another message follows.
FORGETFUL = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if loop.last %}{{ m.content }}{% else %}{{ m.content.split('</think>') | last }}{% endif %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello?"},
    {"role": "assistant", "content": "Hello world\n\n"},
    {"role": "user", "content": "\n12345 日本"},
    {"role": "assistant", "content": "  äöü"},
]


def learned(raw: dict[str, Any], messages: Any, tokenizer: LoadedTokenizer, path: str) -> tuple[str, list[str]]:
    """Return the document's text, and the runs of it that are learned."""
    documents = run({"kind": "chat", **raw}, [sample(messages=messages)], tokenizer)
    assert documents.bad == ()
    (tokens,), (mask,) = tokens_of(documents), masks_of(documents)
    runs: list[list[int]] = []
    for position, (token, flag) in enumerate(zip(tokens, mask, strict=True)):
        if flag and (position == 0 or not mask[position - 1]):
            runs.append([])
        if flag:
            runs[-1].append(token)
    return decode(path, tokens), [decode(path, part) for part in runs]


CHATML_TEXT = (
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello?<|im_end|>\n"
    "<|im_start|>assistant\nHello world\n\n<|im_end|>\n<|im_start|>user\n\n12345 日本<|im_end|>\n"
    "<|im_start|>assistant\n  äöü<|im_end|>\n"
)


@pytest.mark.parametrize("template", [None, CHATML, UNMARKED])
def test_content_and_end_of_turn_are_learned(
    tokenizer: LoadedTokenizer, tokenizer_config: Tokenizer, template: str | None
) -> None:
    text, runs = learned({"template": template}, TALK, tokenizer, tokenizer_config.path)
    assert text == CHATML_TEXT
    assert runs == ["Hello world\n\n<|im_end|>", "  äöü<|im_end|>"]


def test_without_an_end_token_the_line_end_is_learned(tokenizer: LoadedTokenizer, tokenizer_config: Tokenizer) -> None:
    text, runs = learned({"template": PLAIN}, TALK, tokenizer, tokenizer_config.path)
    assert text.startswith("SYSTEM: Be brief.\nUSER: Hello?\nASSISTANT: Hello world")
    assert runs == ["Hello world\n\n\n", "  äöü\n"]


CONTENT = st.text(st.sampled_from(" \n\tab1é日<|>:🙂"), max_size=12)
MESSAGES = st.lists(
    st.tuples(st.sampled_from(["system", "user", "assistant"]), CONTENT).map(
        lambda pair: {"role": pair[0], "content": pair[1]}
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=200)
@given(messages=MESSAGES)
def test_masks_are_exact_at_the_token(
    tokenizer: LoadedTokenizer, tokenizer_config: Tokenizer, messages: list[dict[str, str]]
) -> None:
    # Both ways of telling what is learned agree, and the learned tokens spell the assistant's words and no others.
    marked = run({"kind": "chat"}, [sample(messages=messages)], tokenizer)
    unmarked = run({"kind": "chat", "template": UNMARKED}, [sample(messages=messages)], tokenizer)
    assert tokens_of(marked) == tokens_of(unmarked)
    assert masks_of(marked) == masks_of(unmarked)
    (tokens,), (mask,) = tokens_of(marked), masks_of(marked)
    text = decode(tokenizer_config.path, [token for token, flag in zip(tokens, mask, strict=True) if flag])
    assert text == "".join(m["content"] + "<|im_end|>" for m in messages if m["role"] == "assistant")


def test_a_batch_is_its_samples_one_by_one(tokenizer: LoadedTokenizer) -> None:
    samples = [sample(messages=TALK[:length]) for length in range(len(TALK) + 1)]
    samples.insert(2, sample(other=1))
    together = run({"kind": "chat", "eos": True}, samples, tokenizer)
    alone = [run({"kind": "chat", "eos": True}, [one], tokenizer) for one in samples]
    assert tokens_of(together) == [tokens for documents in alone for tokens in tokens_of(documents)]
    assert masks_of(together) == [mask for documents in alone for mask in masks_of(documents)]
    assert together.counts.tolist() == [0, 1, 0, 1, 1, 1, 1]
    assert together.bad == ((2, f"no member 'messages' (has: 'other'); set {PLACE}.field to one of these"),)


def test_mask_all_has_no_mask_and_encodes_the_text_whole(tokenizer: LoadedTokenizer) -> None:
    documents = run({"kind": "chat", "mask": "all"}, [sample(messages=TALK)], tokenizer)
    assert documents.mask is None
    assert tokens_of(documents) == [encode(tokenizer, CHATML_TEXT)]


def test_a_page_has_a_mask_whatever_its_samples(tokenizer: LoadedTokenizer) -> None:
    for samples in ([], [sample()], [sample(messages=[])], [sample(messages=TALK[:1])]):
        documents = run({"kind": "chat"}, samples, tokenizer)
        assert documents.mask is not None
        assert documents.mask.sum() == 0


def test_eos_is_learned(tokenizer: LoadedTokenizer) -> None:
    documents = run({"kind": "chat", "eos": True}, [sample(messages=TALK[:2])], tokenizer)
    assert tokens_of(documents)[0][-1] == tokenizer.eos_id
    assert masks_of(documents)[0][-1] == 1
    assert sum(masks_of(documents)[0]) == 1


@pytest.mark.parametrize("form", [list, json.dumps, lambda m: json.dumps(m).encode(), lambda m: {"messages": m}])
def test_messages_may_be_objects_or_json(tokenizer: LoadedTokenizer, form: Any) -> None:
    documents = run({"kind": "chat"}, [sample(messages=form(TALK)), sample(messages=TALK)], tokenizer)
    first, second = tokens_of(documents)
    assert first == second


def test_other_names_and_roles_are_mapped(tokenizer: LoadedTokenizer) -> None:
    talk = [{"from": "human", "value": "Hello?"}, {"from": "gpt", "value": "Hello"}]
    raw = {"role": "from", "content": "value", "roles": {"human": "user", "gpt": "assistant"}, "field": "talk"}
    mapped = run({"kind": "chat", **raw}, [sample(talk=talk)], tokenizer)
    same = [{"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Hello"}]
    plain = run({"kind": "chat"}, [sample(messages=same)], tokenizer)
    assert (tokens_of(mapped), masks_of(mapped)) == (tokens_of(plain), masks_of(plain))


def test_extra_fields_and_constants_reach_the_template(tokenizer: LoadedTokenizer, tokenizer_config: Tokenizer) -> None:
    template = "{{ bos_token }}{{ date }} {{ tools | tojson }} {{ messages[0].content }}{{ eos_token }}"
    raw = {"template": template, "mask": "all", "extra": ["tools"], "variables": {"date": "1 May"}}
    documents = run({"kind": "chat", **raw}, [sample(messages=TALK, tools=[{"é": "<a>"}])], tokenizer)
    text = decode(tokenizer_config.path, tokens_of(documents)[0])
    assert text == '<|im_start|>1 May [{"é": "<a>"}] Be brief.<|endoftext|>'
    assert stage_fields(stage_config({"kind": "chat", **raw}, place=PLACE)) == ("messages", "tools")


def test_a_template_is_a_text_a_file_or_a_tokenizer_config(tokenizer: LoadedTokenizer, tmp_path: Path) -> None:
    file = tmp_path / "chat.jinja"
    file.write_text(UNMARKED)
    settings_file = tmp_path / "tokenizer_config.json"
    settings_file.write_text(json.dumps({"chat_template": UNMARKED, "other": 1}))
    plans = []
    expected = tokens_of(run({"kind": "chat"}, [sample(messages=TALK)], tokenizer))
    for template in (UNMARKED, str(file), str(settings_file)):
        raw = {"kind": "chat", "template": template}
        assert tokens_of(run(raw, [sample(messages=TALK)], tokenizer)) == expected
        plans.append(stage_plan(stage_config(raw, place=PLACE), Tokenizer(path="t.json")))
    # The plan knows a template by its text, wherever it lies.
    assert plans[0] == plans[1] == plans[2]
    assert plans[0] != stage_plan(stage_config({"kind": "chat"}, place=PLACE), Tokenizer(path="t.json"))


# What goes wrong.


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"[{", "'messages' isn't JSON"),
        (b"\xff", "'messages' isn't JSON"),
        ("3", "'messages' is of type int, not a list of messages"),
        ({"other": 1}, "'messages' is of type dict, not a list of messages"),
        (["hello"], "message 0 of 'messages' is of type str, not an object"),
        ([{"role": "user", "content": "a"}, {"from": "x"}], "message 1 of 'messages' has no 'role' that is a string"),
        ([{"role": 3}], "has no 'role' that is a string (has: 'role'); set the stage's role and content"),
        ([{"role": "user"}], "the chat template fails: "),
        ([{"role": "user", "content": 5}], "the chat template fails: TypeError"),
        ([{"role": "user", "content": chr(0xD800)}], "half a surrogate pair"),
    ],
)
def test_messages_that_are_none_are_bad(tokenizer: LoadedTokenizer, value: Any, message: str) -> None:
    documents = run({"kind": "chat"}, [sample(messages=TALK), sample(messages=value)], tokenizer)
    ((number, said),) = documents.bad
    assert number == 1
    assert message in said
    assert documents.counts.tolist() == [1, 0]


def test_a_turn_whose_thoughts_are_forgotten_is_learned_as_written(
    tokenizer: LoadedTokenizer, tokenizer_config: Tokenizer
) -> None:
    talk = [TALK[1], {"role": "assistant", "content": "<think>x</think>Hi"}, TALK[1], TALK[4]]
    marked = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% set words = m.content if loop.last else m.content.split('</think>') | last %}"
        "{% if m.role == 'assistant' %}{% generation %}{{ words }}<|im_end|>{% endgeneration %}"
        "{% else %}{{ words }}<|im_end|>{% endif %}{{ '\n' }}{% endfor %}"
    )
    for template in (FORGETFUL, marked):
        text, runs = learned({"template": template}, talk, tokenizer, tokenizer_config.path)
        assert "think" not in text
        assert runs == ["Hi<|im_end|>", "  äöü<|im_end|>"]


def test_where_the_end_of_a_turn_is_in_doubt_the_sample_is_bad(tokenizer: LoadedTokenizer) -> None:
    # The message spells the end of a turn, and isn't written as it stands: which end is the turn's?
    doubtful = [TALK[1], {"role": "assistant", "content": "<think>x</think>Hi<|im_end|> there"}, TALK[1]]
    # Without an end-of-turn token nothing tells where a changed turn ends.
    plain = FORGETFUL.replace("<|im_end|>", "")
    changed = [TALK[1], {"role": "assistant", "content": "<think>x</think>Hi"}, TALK[1]]
    # The generation prompt is no beginning of the turn.
    other = UNMARKED.replace("assistant\n{% endif", "assistant:{% endif")
    for template, talk in ((FORGETFUL, doubtful), (plain, changed), (other, TALK)):
        documents = run({"kind": "chat", "template": template}, [sample(messages=talk)], tokenizer)
        ((_, message),) = documents.bad
        assert "otherwise where more messages follow" in message
        assert "{% generation %}" in message


def test_raise_exception_makes_the_sample_bad(tokenizer: LoadedTokenizer) -> None:
    template = "{% if messages[0].role != 'user' %}{{ raise_exception('roles must\nalternate') }}{% endif %}x"
    raw = {"kind": "chat", "template": template, "mask": "all"}
    documents = run(raw, [sample(messages=TALK), sample(messages=TALK[1:])], tokenizer)
    assert documents.bad == ((0, "the chat template fails: TemplateError: roles must alternate"),)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for %}", r"sources\.web\.stage\.template: line 1 of the template: "),
        ("a\n{% generation %}x", r"line 2 of the template: "),
        (
            "{% macro m() %}{% generation %}x{% endgeneration %}{% endmacro %}{{ m() }}",
            "can't be followed; move it out",
        ),
        ("{% set x %}{% generation %}x{% endgeneration %}{% endset %}{{ x }}", "can't be followed; move it out"),
        ("{% filter upper %}{% generation %}x{% endgeneration %}{% endfilter %}", "can't be followed; move it out"),
        ("no_such_file.jinja", r"template='no_such_file\.jinja' can't be read \(No such file"),
        ("{{ messages | random }}", "No filter named 'random'"),
    ],
)
def test_a_template_that_cannot_work_is_refused_at_once(
    tokenizer: LoadedTokenizer, template: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        run({"kind": "chat", "template": template}, [], tokenizer)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{{ messages.__class__.__base__.__subclasses__() }}",
        "{{ strftime_now('%Y') }}",
        "{{ lipsum() }}",
    ],
)
def test_the_sandbox_has_no_way_out_no_clock_and_no_chance(tokenizer: LoadedTokenizer, template: str) -> None:
    documents = run({"kind": "chat", "template": template, "mask": "all"}, [sample(messages=TALK)], tokenizer)
    ((_, message),) = documents.bad
    assert message.startswith("the chat template fails: ")


def test_what_a_template_needs_of_the_tokenizer_is_said(tokenizer_config: Tokenizer) -> None:
    bare = load_tokenizer(Tokenizer(path=tokenizer_config.path))
    with pytest.raises(ConfigError, match=r"template uses bos_token, but tokenizer\.bos isn't set; set it"):
        run({"kind": "chat", "template": "{{ bos_token }}"}, [], bare)
    with pytest.raises(ConfigError, match=r"stage\.eos is true, but tokenizer\.eos isn't set"):
        run({"kind": "chat", "eos": True}, [], bare)


def test_a_tokenizer_that_cannot_encode_pieces_is_refused(tmp_path: Path, tokenizer_config: Tokenizer) -> None:
    content = json.loads(Path(tokenizer_config.path).read_text())
    content["pre_tokenizer"] = {
        "type": "ByteLevel",
        "add_prefix_space": True,
        "trim_offsets": True,
        "use_regex": True,
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    spaced = load_tokenizer(Tokenizer(path=str(tmp_path), eos="<|endoftext|>"))
    with pytest.raises(ConfigError, match=r"sources\.web\.stage encodes a document's pieces apart.*mask: all"):
        run({"kind": "chat"}, [], spaced)
    with pytest.raises(ConfigError, match=r"sources\.web\.stage\.fim encodes a document's pieces apart"):
        run({"fim": {}}, [], spaced)
    assert run({"kind": "chat", "mask": "all"}, [sample(messages=TALK)], spaced).counts.tolist() == [1]


def test_a_tokenizer_without_a_decoder_is_told_so(tmp_path: Path, tokenizer_config: Tokenizer) -> None:
    content = json.loads(Path(tokenizer_config.path).read_text()) | {"decoder": None}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    bare = load_tokenizer(Tokenizer(path=str(tmp_path), eos="<|endoftext|>"))
    with pytest.raises(ConfigError, match=r"it has no decoder, or"):
        run({"kind": "chat"}, [], bare)
