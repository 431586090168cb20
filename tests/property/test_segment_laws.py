"""Documents of texts and images are what a writer gives that goes token by token and document by document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from zephon.errors import DataError
from zephon.images.rules import Geometry
from zephon.page import HASH, NUMBER, PATCHES, PLACE, TOKENS
from zephon.stages.cuts import cut
from zephon.stages.pictures import Images, Picture
from zephon.stages.segments import COST_SHIFT, Segment, SegmentWriter

BOS, EOS, START, END, PLACEHOLDER = range(5)
NAMES = {"<bos>": BOS, "<eos>": EOS, "<start>": START, "<end>": END, "<image>": PLACEHOLDER}
# A letter is a token; these are what tokenizers do besides.
NOTHING, FAULT, SPELLED = "_", "!", "#"


class Letters:
    """A tokenizer of letters."""

    bos, eos, bos_id, eos_id = "<bos>", "<eos>", BOS, EOS

    def token_id(self, token: str, *, place: str) -> int:
        return NAMES[token]

    def encode_batch(self, texts: Sequence[str]) -> tuple[Any, Any]:
        ids = [encoded(text) for text in texts]
        for text, each in zip(texts, ids, strict=True):
            if each is None:
                raise DataError(f"can't encode {text!r}")
        whole = [token for each in ids for token in each or ()]
        return np.array(whole, np.uint32), np.cumsum([0, *(len(each or ()) for each in ids)], dtype=np.int64)


def encoded(text: str) -> list[int] | None:
    if FAULT in text:
        return None
    return [PLACEHOLDER if letter == SPELLED else ord(letter) for letter in text if letter != NOTHING]


@st.composite
def pages(draw: st.DrawFn) -> list[list[Segment]]:
    """Return the segments of some samples; images are numbered within theirs."""
    letters = st.text(st.sampled_from("abcdefgh"), max_size=9) | st.text(st.sampled_from("ab_!#"), max_size=3)
    samples = []
    for _ in range(draw(st.integers(0, 5))):
        segments: list[Segment] = []
        for is_image in draw(st.lists(st.booleans(), max_size=6)):
            if is_image:
                rows, columns, frames = draw(st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 2)))
                geometry = Geometry(4 * rows, 4 * columns, frames, rows, columns, 4 * rows * columns, rows * columns)
                number = sum(isinstance(each, Picture) for each in segments)
                segments.append(Picture(number, geometry, draw(st.integers(0, (1 << 64) - 1)), frames))
            else:
                segments.append((draw(letters), draw(st.booleans())))
        samples.append(segments)
    return samples


@settings(max_examples=examples(200))
@given(
    samples=pages(),
    start=st.sampled_from([None, "<start>"]),
    end=st.sampled_from([None, "<end>"]),
    bos=st.booleans(),
    eos=st.booleans(),
    limit=st.integers(6, 40),
    long=st.sampled_from(["split", "truncate", "drop"]),
)
def test_documents_are_those_of_a_writer_that_goes_token_by_token(
    samples: list[list[Segment]], start: str | None, end: str | None, bos: bool, eos: bool, limit: int, long: Any
) -> None:
    writer = SegmentWriter(
        Images(placeholder="<image>", start=start, end=end),
        Letters(),  # type: ignore[arg-type]
        before=(BOS,) * bos,
        after=(EOS,) * eos,
        max_tokens=limit,
        long=long,
        place="s",
    )
    # Every second sample is one that the stage itself found bad.
    owners = list(range(0, 2 * len(samples), 2))
    made = writer.write(owners, samples, {number + 1: "bad" for number in owners}, num_samples=2 * len(samples))
    expected: list[Any] = []
    bad = {number + 1 for number in owners}
    for owner, segments in zip(owners, samples, strict=True):
        found = naive(segments, start=start, end=end, bos=bos, eos=eos, limit=limit, long=long)
        if found is None:
            bad.add(owner)
        else:
            expected += [(owner, *each) for each in found]
    assert {number for number, _ in made.bad} == bad
    assert made.counts.tolist() == [sum(each[0] == n for each in expected) for n in range(2 * len(samples))]
    assert made.meta is not None
    assert made.mask is not None
    assert made.attachments is not None
    assert (made.tokens.dtype, made.mask.dtype) == (np.uint32, np.uint8)
    documents = []
    for number, (first, last) in enumerate(zip(made.offsets[:-1].tolist(), made.offsets[1:].tolist(), strict=True)):
        held = [row for row in made.attachments.tolist() if first <= row[PLACE] < last]
        places = [(row[PLACE] - first, row[TOKENS], row[NUMBER], row[PATCHES], row[HASH] % (1 << 64)) for row in held]
        text = made.tokens[first:last].tolist(), made.mask[first:last].tolist()
        documents.append((*text, places, tuple(made.meta[number].tolist())))
    assert documents == [each[1:] for each in expected]


def naive(
    segments: list[Segment], *, start: str | None, end: str | None, bos: bool, eos: bool, limit: int, long: str
) -> list[tuple[list[int], list[int], list[tuple[int, ...]], tuple[int, ...]]] | None:
    """Return tokens, mask, images and metadata of each document of a sample; None: the sample is bad."""
    if any(isinstance(each, Picture) and each.geometry.tokens > limit for each in segments):
        return None
    tokens, mask = [BOS] * bos, [0] * bos
    pictures: list[tuple[int, Picture]] = []
    blocks: list[tuple[int, int]] = []
    num_text = 0
    spelled = False
    for segment in segments:
        begin = len(tokens)
        if isinstance(segment, Picture):
            tokens += [START] * (start is not None)
            pictures.append((len(tokens), segment))
            tokens += [PLACEHOLDER] * segment.geometry.tokens + [END] * (end is not None)
            mask += [0] * (len(tokens) - begin)
            blocks.append((begin, len(tokens)))
        else:
            ids = encoded(segment[0])
            if ids is None:
                return None
            spelled |= PLACEHOLDER in ids
            tokens += ids
            mask += [int(segment[1])] * len(ids)
            num_text += len(ids)
    tokens += [EOS] * eos
    mask += [1] * eos
    if not num_text:
        return []
    if spelled:
        return None
    pieces = cut(len(tokens), blocks, limit=limit, closed=end is not None)
    if pieces is None:
        return None
    if len(pieces) > 1:
        pieces = {"split": pieces, "truncate": pieces[:1], "drop": []}[long]
    found = []
    for first, last in pieces:
        if not any(mask[first + 1 : last]):
            continue
        closer = end is None and tokens[last - 1] == PLACEHOLDER
        held = [(place - first, picture) for place, picture in pictures if first <= place < last]
        length = last - first + closer
        patches = [picture.geometry.patches for _, picture in held]
        cost = (length**2 + sum(count**2 for count in patches)) >> COST_SHIFT
        rows = [
            (place, picture.geometry.tokens, picture.number, picture.geometry.patches, picture.digest)
            for place, picture in held
        ]
        found.append(
            (
                tokens[first:last] + [EOS] * closer,
                mask[first:last] + [0] * closer,
                rows,
                (len(held), sum(patches), cost),
            )
        )
    return found
