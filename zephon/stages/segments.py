"""From texts and images in order to documents: placeholders, loss mask, attachments, and cuts of what is too long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from zephon.errors import ConfigError
from zephon.formats.sample import Sample
from zephon.page import COLUMNS
from zephon.stages.cuts import cut
from zephon.stages.documents import Documents, encode_texts
from zephon.stages.edges import edge_token, need_joins, need_tokenizer
from zephon.stages.fields import BadSampleError
from zephon.stages.pictures import Images, Picture
from zephon.tokenizer import LoadedTokenizer

# A text, and whether its tokens are to be predicted; or an image, whose tokens never are.
Segment = tuple[str, bool] | Picture
Long = Literal["split", "truncate", "drop"]
METADATA = ("images", "patches", "cost")
# Attention work is counted in 2^10 pairs of tokens or patches.
COST_SHIFT = 10


class Settings(Protocol):
    """What stages with images have in common."""

    @property
    def images(self) -> Images: ...
    @property
    def bos(self) -> bool: ...
    @property
    def eos(self) -> bool: ...
    @property
    def max_tokens(self) -> int | None: ...
    @property
    def long(self) -> Long | None: ...


class _Draft(NamedTuple):
    """A document before it is cut: where it stands among the page's, and each image with its first placeholder."""

    owner: int
    start: int
    length: int
    # The last token that is to be predicted, -1 where none is.
    learned: int
    pictures: list[tuple[int, Picture]]


class SegmentWriter:
    """Writes documents of segments, each of at most `max_tokens` tokens."""

    def __init__(
        self,
        images: Images,
        tokenizer: LoadedTokenizer,
        *,
        before: tuple[int, ...],
        after: tuple[int, ...],
        max_tokens: int,
        long: Long,
        place: str,
    ) -> None:
        self._tokenizer = tokenizer
        self._before = before
        self._after = after
        self._max_tokens = max_tokens
        self._long = long
        self._place = place
        self._name = images.placeholder
        self._placeholder = tokenizer.token_id(images.placeholder, place=f"{place}.images.placeholder")
        # Around an image's placeholders, as runs: a token, how many of it, and whether they are to be predicted.
        self._opener, self._ender = (
            () if token is None else ((tokenizer.token_id(token, place=f"{place}.images.{name}"), 1, False),)
            for name, token in (("start", images.start), ("end", images.end))
        )
        # A row's last token is a label only, so that a piece which ends with a placeholder gets one more.
        self._closer = () if self._ender else (edge_token(tokenizer, "eos", place=place),)
        edges = [token for token, _, _ in (*self._opener, *self._ender)]
        if self._placeholder in (*edges, *before, *after, *self._closer):
            raise ConfigError(
                f"{place}.images.placeholder={self._name!r} is also a start, end, bos or eos token, so that nobody "
                "could tell images by it; choose a token of its own"
            )

    def documents(self, samples: Sequence[Sample], segments_of: Callable[[Sample], list[Segment]]) -> Documents:
        """Return the samples' documents, of the segments that each is made of; what has none to give is bad."""
        owners: list[int] = []
        written: list[list[Segment]] = []
        bad: dict[int, str] = {}
        for number, sample in enumerate(samples):
            try:
                segments = segments_of(sample)
            except BadSampleError as error:
                bad[number] = str(error)
                continue
            owners.append(number)
            written.append(segments)
        return self.write(owners, written, bad, num_samples=len(samples))

    def write(self, owners: Sequence[int], samples: Sequence[Sequence[Segment]], bad: dict[int, str], *,
              num_samples: int) -> Documents:  # fmt: skip
        """Return the documents of some samples, `owners` their numbers among `num_samples`; may add to `bad`."""
        fitting = []
        for owner, segments in zip(owners, samples, strict=True):
            most = max((each.geometry.tokens for each in segments if isinstance(each, Picture)), default=0)
            # Told before so many placeholders are written, which memory may not hold.
            if most > self._max_tokens:
                bad[owner] = self._too_large(most)
            else:
                fitting.append((owner, segments))
        drafts, tokens, mask = self._drafts(fitting, bad)
        spans: list[tuple[int, int, bool]] = []
        sizes: list[int] = []
        meta: list[tuple[int, int, int]] = []
        rows: list[tuple[int, ...]] = []
        counts = np.zeros(num_samples, dtype=np.int32)
        at = 0
        for draft in drafts:
            for first, last in self._pieces(draft, bad):
                start, stop = draft.start + first, draft.start + last
                # Nothing is learned from its first token, nor from images.
                whole = last - first == draft.length
                if not (draft.learned > 0 if whole else mask[start + 1 : stop].any()):
                    continue
                held = [(place, picture) for place, picture in draft.pictures if first <= place < last]
                closed = bool(self._closer) and bool(tokens[stop - 1] == self._placeholder)
                length = last - first + closed
                spans.append((start, stop, closed))
                sizes.append(length)
                rows += [_row(at + place - first, picture) for place, picture in held]
                at += length
                patches = [picture.geometry.patches for _, picture in held]
                cost = (length**2 + sum(count**2 for count in patches)) >> COST_SHIFT
                meta.append((len(held), sum(patches), cost))
                counts[draft.owner] += 1
        return Documents(
            tokens=_gather(tokens, spans, np.array(self._closer, np.uint32)),
            offsets=np.array([0, *accumulate(sizes)], dtype=np.int64),
            counts=counts,
            mask=_gather(mask, spans, np.zeros(len(self._closer), np.uint8)),
            meta=np.array(meta, dtype=np.int64).reshape(len(meta), len(METADATA)),
            bad=tuple(sorted(bad.items())),
            attachments=np.array(rows, dtype=np.int64).reshape(len(rows), COLUMNS),
        )

    def _drafts(
        self, samples: Sequence[tuple[int, Sequence[Segment]]], bad: dict[int, str]
    ) -> tuple[list[_Draft], NDArray[np.uint32], NDArray[np.uint8]]:
        """Return the documents before they are cut, and tokens and mask of all of them; may add to `bad`.

        Runs of equal tokens are written as such, so that a page takes a few calls whatever its images take.
        """
        texts = [each[0] for _, segments in samples for each in segments if not isinstance(each, Picture)]
        failed: dict[int, str] = {}
        encoded, offsets = encode_texts(texts, self._tokenizer, failed)
        ends = iter(offsets.tolist()[1:])
        spelled = encoded == self._placeholder
        is_spelled = bool(spelled.any())
        # A run's token, -1 in place of a text's; its length; and whether it is to be predicted.
        runs: list[tuple[int, int, bool]] = []
        drafts: list[_Draft] = []
        position = text = text_at = 0
        for owner, segments in samples:
            start, first_text, text_start = position, text, text_at
            learned = -1
            pictures: list[tuple[int, Picture]] = []
            runs += [(token, 1, False) for token in self._before]
            position += len(self._before)
            for segment in segments:
                if isinstance(segment, Picture):
                    count = segment.geometry.tokens
                    runs += [*self._opener, (self._placeholder, count, False), *self._ender]
                    position += len(self._opener)
                    pictures.append((position - start, segment))
                    position += count + len(self._ender)
                    continue
                count = next(ends) - text_at
                runs.append((-1, count, segment[1]))
                position += count
                text_at += count
                text += 1
                if segment[1] and count:
                    learned = position - start - 1
            if self._after:
                runs += [(token, 1, True) for token in self._after]
                position += len(self._after)
                learned = position - start - 1
            for number in range(first_text, text) if failed else ():
                if number in failed:
                    bad[owner] = failed[number]
            if owner in bad or text_at == text_start:
                continue
            if is_spelled and spelled[text_start:text_at].any():
                bad[owner] = f"its text spells the placeholder {self._name!r}, which stands for images alone; remove it"
            else:
                drafts.append(_Draft(owner, start, position - start, learned, pictures))
        table = np.array(runs, dtype=np.int64).reshape(len(runs), 3)
        ids, lengths = table[:, 0], table[:, 1]
        tokens = ids.astype(np.uint32).repeat(lengths)
        tokens[(ids < 0).repeat(lengths)] = encoded
        return drafts, tokens, table[:, 2].astype(np.uint8).repeat(lengths)

    def _pieces(self, draft: _Draft, bad: dict[int, str]) -> list[tuple[int, int]]:
        """Return start and stop of a document's pieces; none, and `bad`, where none fit."""
        if draft.length < self._max_tokens:
            return [(0, draft.length)]
        before, behind = len(self._opener), len(self._ender)
        blocks = [(place - before, place + picture.geometry.tokens + behind) for place, picture in draft.pictures]
        pieces = cut(draft.length, blocks, limit=self._max_tokens, closed=bool(behind))
        if pieces is None:
            bad[draft.owner] = self._too_large(max(picture.geometry.tokens for _, picture in draft.pictures))
            return []
        if len(pieces) > 1:
            pieces = {"split": pieces, "truncate": pieces[:1], "drop": []}[self._long]
        return pieces

    def _too_large(self, tokens: int) -> str:
        return (
            f"an image takes {tokens} tokens, too many for max_tokens={self._max_tokens}; set a smaller "
            f"{self._place}.images.resize, or a larger sequence_length"
        )


def make_writer(settings: Settings, tokenizer: LoadedTokenizer, *, place: str) -> SegmentWriter:
    """Return the writer of a stage. Raises ConfigError where the tokenizer or the settings don't allow it."""
    if settings.max_tokens is None or settings.long is None:
        raise ConfigError(f"{place}.max_tokens and long are unset; set them where no row gives a length")
    return SegmentWriter(
        settings.images,
        tokenizer,
        before=(edge_token(tokenizer, "bos", place=place),) if settings.bos else (),
        after=(edge_token(tokenizer, "eos", place=place),) if settings.eos else (),
        max_tokens=settings.max_tokens,
        long=settings.long,
        place=place,
    )


def joining_tokenizer(tokenizer: LoadedTokenizer | None, *, place: str) -> LoadedTokenizer:
    """Return the tokenizer, if it tokenizes texts beside images as it does alone. Raises ConfigError otherwise."""
    tokenizer = need_tokenizer(tokenizer, place=place)
    need_joins(tokenizer, place=place)
    return tokenizer


def _gather(whole: NDArray[Any], spans: Sequence[tuple[int, int, bool]], closer: NDArray[Any]) -> NDArray[Any]:
    """Return the spans of `whole` one after another, `closer` behind those that say so."""
    parts = [whole[:0]]
    begin = end = 0
    for start, stop, closed in spans:
        # Neighbours in one go: most pages are a single one.
        if start != end:
            parts.append(whole[begin:end])
            begin = start
        end = stop
        if closed:
            parts += [whole[begin:end], closer]
            begin = end
    return np.concatenate((*parts, whole[begin:end]))


def _row(place: int, picture: Picture) -> tuple[int, ...]:
    """Return an attachment's columns, in Page's order."""
    g = picture.geometry
    # As a signed number, because that is what the columns hold.
    digest = picture.digest - ((picture.digest >> 63) << 64)
    return (
        place,
        g.tokens,
        picture.number,
        picture.frames,
        g.height,
        g.width,
        g.grid_t,
        g.grid_h,
        g.grid_w,
        g.patches,
        digest,
    )
