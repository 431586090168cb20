"""Image stages: placeholders by header and rule, masks, cuts, and what makes a sample bad."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import numpy as np
import pytest
from pictures import FIXED, NATIVE, images_of, picture
from stage_runs import check, encode, masks_of, tokens_of
from xxhash import xxh3_64_intdigest

from zephon import ConfigError
from zephon.formats.sample import Sample
from zephon.images.header import read_header
from zephon.images.rules import read_rule
from zephon.page import GRID_H, GRID_T, GRID_W, HASH, HEIGHT, NUMBER, PLACE, TOKENS, WIDTH, Wanted
from zephon.random import SampleRandom
from zephon.stages import fitted_config
from zephon.stages.documents import Documents
from zephon.tokenizer import LoadedTokenizer

PAD, START, END, EOS = 6, 3, 4, 0


def build(raw: dict[str, Any], tokenizer: LoadedTokenizer, *, capacity: int = 512, long: str = "split") -> Any:
    return fitted_config(raw, capacity=capacity, long=long, place="s").build(tokenizer, place="s")


def run(raw: dict[str, Any], tokenizer: LoadedTokenizer, *fields: dict[str, Any], **settings: Any) -> Documents:
    samples = [Sample(str(number), each) for number, each in enumerate(fields)]
    made: Documents = build(raw, tokenizer, **settings).documents(samples, lambda _: SampleRandom(0))
    check(made, len(samples))
    return made


def documents(made: Documents) -> list[tuple[list[int], list[int]]]:
    """Return tokens and mask of each document."""
    return list(zip(tokens_of(made), masks_of(made), strict=True))


def geometry(data: bytes, resize: dict[str, Any] = NATIVE) -> Any:
    return read_rule(resize, place="resize").plan(read_header(data, max_pixels=1 << 20))


def test_a_placeholder_that_is_no_token_names_the_remedy(tokenizer: LoadedTokenizer) -> None:
    look = images_of(NATIVE, placeholder="<|picture|>")
    remedy = (
        r"set s\.images\.placeholder to one of its tokens, or add it .* by tokenizers' add_special_tokens \(docs/vis"
    )
    with pytest.raises(ConfigError, match=r"s\.images\.placeholder='<\|picture\|>' is no token of .*; " + remedy):
        build({"kind": "image_text", "images": look}, tokenizer)


@pytest.mark.parametrize("resize", [NATIVE, FIXED])
@pytest.mark.parametrize("edges", [True, False])
def test_a_caption_follows_its_image(tokenizer: LoadedTokenizer, resize: dict[str, Any], edges: bool) -> None:
    kind, data = picture(3)
    plan = geometry(data, resize)
    look = images_of(resize) if edges else images_of(resize, start=None, end=None)
    made = run({"kind": "image_text", "images": look}, tokenizer, {kind: data, "txt": b"hello world"})
    ((tokens, mask),) = documents(made)
    image = [*[START] * edges, *[PAD] * plan.tokens, *[END] * edges]
    text = [*encode(tokenizer, "hello world"), EOS]
    assert tokens == image + text
    assert mask == [0] * len(image) + [1] * len(text)
    assert made.attachments is not None
    (row,) = made.attachments.tolist()
    assert [row[c] for c in (PLACE, TOKENS, NUMBER)] == [int(edges), plan.tokens, 0]
    assert [row[c] for c in (HEIGHT, WIDTH, GRID_T, GRID_H, GRID_W)] == list(plan[:5])
    assert row[HASH] % 2**64 == xxh3_64_intdigest(data)
    assert made.meta is not None
    assert made.meta.tolist() == [[1, plan.patches, (len(tokens) ** 2 + plan.patches**2) >> 10]]


def test_text_may_come_first_and_the_piece_still_ends_with_a_token_of_its_own(tokenizer: LoadedTokenizer) -> None:
    kind, data = picture(3)
    raw = {
        "kind": "image_text",
        "order": "text_first",
        "eos": False,
        "images": images_of(start=None, end=None),
    }
    ((tokens, mask),) = documents(run(raw, tokenizer, {kind: data, "txt": b"hello"}))
    # The last token of a row is a label only: a placeholder there would have no input.
    assert tokens == [*encode(tokenizer, "hello"), *[PAD] * geometry(data).tokens, EOS]
    assert mask[-1] == 0


def test_a_conversation_has_its_images_where_its_markers_are(tokenizer: LoadedTokenizer) -> None:
    pictures = [picture(n, kind="png", mode="RGB")[1] for n in (1, 2)]
    messages = [
        {"role": "user", "content": "<image> hello <image> world"},
        {"role": "assistant", "content": "fox"},
        {"role": "user", "content": "dog"},
        {"role": "assistant", "content": "hello"},
    ]
    raw = {"kind": "image_text", "images": images_of(), "image": "image", "chat": {"field": "m"}, "eos": False}
    made = run(raw, tokenizer, {"image": pictures, "m": json.dumps(messages).encode()})
    ((tokens, mask),) = documents(made)
    first, second = (geometry(data).tokens for data in pictures)
    image = lambda count: [START, *[PAD] * count, END]  # noqa: E731
    head = [1, *encode(tokenizer, "user\n"), *image(first), *encode(tokenizer, " hello "), *image(second)]
    assert tokens[: len(head)] == head
    learned = [token for token, flag in zip(tokens, mask, strict=True) if flag]
    assert learned == [*encode(tokenizer, "fox"), 2, *encode(tokenizer, "hello"), 2]
    assert made.attachments is not None
    assert made.attachments[:, NUMBER].tolist() == [0, 1]
    listed = [
        {
            "role": "user",
            "content": [{"type": "image"}, " hello ", {"type": "image"}, {"type": "text", "text": " world"}],
        },
        *messages[1:],
    ]
    again = run(raw, tokenizer, {"image": pictures, "m": listed})
    assert again.tokens.tolist() == tokens


def test_long_documents_are_cut_at_the_edges_of_images(tokenizer: LoadedTokenizer) -> None:
    pictures = [picture(n, kind="png", mode="RGB")[1] for n in range(6)]
    parts: list[dict[str, str]] = []
    for number in range(6):
        parts += [{"text": "hello world " * (1 + 5 * (number == 2))}, {"image": f"{number}.png"}]
    parts.append({"text": " the end"})
    fields = {"json": json.dumps(parts).encode(), **{f"{n}.png": data for n, data in enumerate(pictures)}}
    for look in (images_of(), images_of(start=None, end=None)):
        raw = {"kind": "interleaved", "parts": "json", "images": look}
        ((whole, _),) = documents(run(raw, tokenizer, fields, capacity=1000))
        for capacity in (30, 40, 90):
            made = run(raw, tokenizer, fields, capacity=capacity)
            pieces = documents(made)
            assert made.counts.tolist() == [len(pieces)]
            assert len(pieces) > 1
            assert all(len(tokens) <= capacity for tokens, _ in pieces)
            assert all(tokens[-1] != PAD for tokens, _ in pieces)
            assert all(any(mask[1:]) for _, mask in pieces)
            images = 0
            assert made.attachments is not None
            for place, count, *_ in made.attachments.tolist():
                (own,) = (
                    range(*made.offsets[d : d + 2].tolist())
                    for d in range(len(pieces))
                    if made.offsets[d] <= place < made.offsets[d + 1]
                )
                assert place + count - 1 in own
                assert set(made.tokens[place : place + count].tolist()) == {PAD}
                images += count
            assert images == sum(token == PAD for tokens, _ in pieces for token in tokens)
            text = [t for tokens, _ in pieces for t in tokens if t not in (PAD, EOS, START, END)]
            assert [t for t in whole if t not in (PAD, EOS, START, END)][-len(text) :] == text
            truncated = documents(run(raw, tokenizer, fields, capacity=capacity, long="truncate"))
            assert truncated == pieces[:1]
            assert documents(run(raw, tokenizer, fields, capacity=capacity, long="drop")) == []


def test_lists_of_texts_and_images_read_as_parts_do(tokenizer: LoadedTokenizer) -> None:
    data = picture(4, kind="png", mode="RGB")[1]
    raw = {"kind": "interleaved", "images": images_of()}
    parts = {**raw, "parts": "p", "images_field": "i"}
    lists = {**raw, "texts": "t", "images_field": "i"}
    one = run(parts, tokenizer, {"p": ["hello", {"image": 0}, {"text": "world"}], "i": [{"bytes": data}]})
    other = run(lists, tokenizer, {"t": ["hello", None, "world"], "i": [None, data, None]})
    assert documents(one) == documents(other)
    assert np.array_equal(one.attachments, other.attachments)  # type: ignore[arg-type]


def test_the_first_field_that_holds_an_image_counts(tokenizer: LoadedTokenizer) -> None:
    first, second = (picture(n, kind="png", mode="RGB")[1] for n in (1, 2))
    raw = {"kind": "image_text", "images": images_of(), "image": ["a", "b", "c"]}
    assert fitted_config(raw, capacity=9, long="split", place="s").fields() == (("a", "b", "c"), "txt")
    text = {"txt": "hello"}
    made = run(
        raw,
        tokenizer,
        {"c": second, "b": first, **text},
        {"a": None, "b": None, "c": second, **text},
        {"b": None, **text},
    )
    assert made.attachments is not None
    assert made.attachments[:, HASH].tolist() == [
        np.uint64(xxh3_64_intdigest(data)).astype(np.int64) for data in (first, second)
    ]
    assert made.counts.tolist() == [1, 1, 1]


BAD = [
    ({"jpg": b"hello", "txt": b"x"}, "is no JPEG"),
    ({"jpg": b"", "txt": b"x"}, "holds no bytes"),
    ({"jpg": picture(1, kind="jpg", mode="RGB")[1][:40], "txt": b"x"}, "without a scan"),
    ({"txt": b"x"}, "no member 'jpg'"),
    ({"jpg": picture(1, kind="jpg", mode="RGB")[1]}, "no member 'txt'"),
    ({"jpg": picture(1, kind="jpg", mode="RGB")[1], "txt": b"\xff"}, "isn't UTF-8"),
    ({"jpg": picture(1, kind="jpg", mode="RGB")[1], "txt": b"a <|pad|> b"}, "spells the placeholder"),
    ({"jpg": {"bytes": None, "path": "a.jpg"}, "txt": b"x"}, "doesn't hold its bytes"),
    ({"jpg": 5, "txt": b"x"}, "not an image's bytes"),
]


@pytest.mark.parametrize(
    "raw",
    [
        {"kind": "chat", "field": "json"},
        {"kind": "image_text", "images": images_of(), "image": "jpg", "chat": {"field": "json"}},
        {"kind": "interleaved", "images": images_of(), "parts": "json"},
    ],
    ids=lambda raw: raw["kind"],
)
def test_json_that_nests_too_deep_makes_its_sample_bad(tokenizer: LoadedTokenizer, raw: dict[str, Any]) -> None:
    fields = {"jpg": picture(1, kind="jpg", mode="RGB")[1]}
    deep = [{**fields, "json": b"[" * depth + b"]" * depth} for depth in (129, 100_000)]
    samples = [Sample(str(number), each) for number, each in enumerate(deep)]
    made = build(raw, tokenizer).documents(samples, lambda _: SampleRandom(0))
    assert made.bad == (
        (0, "'json' isn't JSON: it nests more than 128 lists and objects"),
        (1, "'json' isn't JSON: it nests more than 128 lists and objects"),
    )


@pytest.mark.parametrize(("fields", "fault"), BAD, ids=[fault for _, fault in BAD])
def test_a_bad_sample_is_told_and_the_others_go_on(
    tokenizer: LoadedTokenizer, fields: dict[str, Any], fault: str
) -> None:
    good = {"jpg": picture(1, kind="jpg", mode="RGB")[1], "txt": b"hello"}
    raw = {"kind": "image_text", "images": images_of()}
    made = run(raw, tokenizer, good, fields, good)
    assert made.counts.tolist() == [1, 0, 1]
    ((number, message),) = made.bad
    assert number == 1
    assert fault in message
    assert "\n" not in message


def test_an_image_that_fits_no_row_is_a_bad_sample(tokenizer: LoadedTokenizer) -> None:
    data = picture(1, kind="jpg", mode="RGB")[1]
    raw = {"kind": "image_text", "images": images_of(FIXED)}
    made = run(raw, tokenizer, {"jpg": data, "txt": b"hello"}, capacity=16)
    assert "takes 16 tokens, too many for max_tokens=16" in made.bad[0][1]


def test_an_image_of_absurdly_many_tokens_is_told_before_they_are_written(tokenizer: LoadedTokenizer) -> None:
    data = picture(1, kind="jpg", mode="RGB")[1]
    raw = {"kind": "image_text", "images": images_of({"kind": "fixed", "size": 8192, "patch": 1})}
    tracemalloc.start()
    made = run(raw, tokenizer, {"jpg": data, "txt": b"hello"})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "takes 67108864 tokens, too many for max_tokens=512" in made.bad[0][1]
    assert peak < 1 << 20


def test_a_sample_without_text_or_with_an_empty_one_gives_no_document(tokenizer: LoadedTokenizer) -> None:
    data = picture(1, kind="jpg", mode="RGB")[1]
    made = run({"kind": "image_text", "images": images_of()}, tokenizer, {"jpg": data, "txt": b""})
    assert made.counts.tolist() == [0]
    assert made.bad == ()
    assert len(made.tokens) == 0


def test_pixels_of_a_damaged_image_show_when_they_are_asked_for_or_before(tokenizer: LoadedTokenizer) -> None:
    data = bytearray(picture(2, kind="png", mode="RGB")[1])
    data[-60:-20] = bytes(40)
    fields = {"png": bytes(data), "txt": b"hello"}
    look = images_of()
    stage = build({"kind": "image_text", "images": look}, tokenizer)
    made = stage.documents([Sample("0", fields)], lambda _: SampleRandom(0))
    assert made.bad == ()
    row = made.attachments[0].tolist()
    wanted = Wanted(0, row[NUMBER], 1, row[HEIGHT], row[WIDTH])
    with pytest.raises(Exception, match="can't be decoded"):
        stage.materialise(Sample("0", fields), wanted, SampleRandom(0))
    checked = run({"kind": "image_text", "images": {**look, "check": "pixels"}}, tokenizer, fields)
    assert "can't be decoded" in checked.bad[0][1]


FAULTS = [
    ({"images": images_of(placeholder="<nothing>")}, "placeholder"),
    ({"images": images_of({"kind": "native", "patch": 4, "std": [0, 1, 1]})}, "std"),
    ({"images": images_of(augment={"function": "nowhere:nothing"})}, "can't import"),
    ({"images": {"start": "a"}}, "placeholder"),
    ({"images": images_of(end=images_of()["placeholder"])}, "also a start, end, bos or eos token"),
    ({"images": images_of(), "image": []}, r"s \(image_text\): Expected `array` of length >= 1 - at `\$\.image`"),
]


@pytest.mark.parametrize(("settings", "fault"), FAULTS, ids=[fault for _, fault in FAULTS])
def test_settings_that_cannot_work_are_told_before_any_data(
    tokenizer: LoadedTokenizer, settings: dict[str, Any], fault: str
) -> None:
    with pytest.raises(ConfigError, match=fault):
        build({"kind": "image_text", **settings}, tokenizer)
