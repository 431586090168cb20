"""From texts and images in order to documents: placeholders, loss mask, attachments, and cuts of what is too long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from zephon.errors import ConfigError
from zephon.formats.sample import Sample
from zephon.page import COLUMNS
from zephon.stages.cuts import cut
from zephon.stages.documents import Documents, Draft, write_documents
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
        self._start, self._end = (
            () if token is None else (tokenizer.token_id(token, place=f"{place}.images.{name}"),)
            for name, token in (("start", images.start), ("end", images.end))
        )
        # A row's last token is a label only, so that a piece which ends with a placeholder gets one more.
        self._closer = () if self._end else (edge_token(tokenizer, "eos", place=place),)

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
        owners, samples = [owner for owner, _ in fitting], [segments for _, segments in fitting]
        drafted = write_documents(self._draft(owners, samples), self._tokenizer, num_samples=num_samples, bad=bad)
        tokens: list[NDArray[np.uint32]] = []
        masks: list[NDArray[np.uint8]] = []
        meta: list[tuple[int, int, int]] = []
        rows: list[tuple[int, ...]] = []
        counts = np.zeros(num_samples, dtype=np.int32)
        at = document = 0
        offsets = drafted.offsets.tolist()
        for owner, segments in zip(owners, samples, strict=True):
            if not drafted.counts[owner]:
                continue
            whole = slice(offsets[document], offsets[document + 1])
            document += 1
            ids = drafted.tokens[whole]
            mask = np.ones(len(ids), np.uint8) if drafted.mask is None else drafted.mask[whole]
            pictures = [segment for segment in segments if isinstance(segment, Picture)]
            pieces = self._pieces(ids, pictures, owner, bad)
            for start, stop, held in pieces:
                if not mask[start + 1 : stop].any():
                    # Nothing is learned from it.
                    continue
                # All that is left is a placeholder, where neither text nor a closing token follows.
                closer = self._closer if ids[stop - 1] == self._placeholder else ()
                tokens += [ids[start:stop], np.array(closer, np.uint32)]
                masks += [mask[start:stop], np.zeros(len(closer), np.uint8)]
                rows += [_row(at + place - start, picture) for place, picture in held]
                length = stop - start + len(closer)
                at += length
                patches = [picture.geometry.patches for _, picture in held]
                cost = (length**2 + sum(count**2 for count in patches)) >> COST_SHIFT
                meta.append((len(held), sum(patches), cost))
                counts[owner] += 1
        sizes = [a.size + b.size for a, b in zip(tokens[::2], tokens[1::2], strict=True)]
        return Documents(
            tokens=np.concatenate((*tokens, np.empty(0, np.uint32))),
            offsets=np.array([0, *accumulate(sizes)], dtype=np.int64),
            counts=counts,
            mask=np.concatenate((*masks, np.empty(0, np.uint8))),
            meta=np.array(meta, dtype=np.int64).reshape(len(meta), len(METADATA)),
            bad=tuple(sorted(bad.items())),
            attachments=np.array(rows, dtype=np.int64).reshape(len(rows), COLUMNS),
        )

    def _draft(self, owners: Sequence[int], samples: Sequence[Sequence[Segment]]) -> Draft:
        texts: list[str] = []
        pieces: list[int] = []
        flags: list[bool] = []
        starts = [0]
        for segments in samples:
            pieces += self._before
            flags += [False] * len(self._before)
            for segment in segments:
                if isinstance(segment, Picture):
                    image = [*self._start, *[self._placeholder] * segment.geometry.tokens, *self._end]
                    pieces += image
                    flags += [False] * len(image)
                else:
                    text, learned = segment
                    texts.append(text)
                    pieces.append(-1)
                    flags.append(learned)
            pieces += self._after
            flags += [True] * len(self._after)
            starts.append(len(pieces))
        return Draft(
            texts=texts,
            pieces=np.array(pieces, dtype=np.int64),
            starts=np.array(starts, dtype=np.int64),
            owners=np.array(owners, dtype=np.int64),
            flags=np.array(flags, dtype=np.uint8),
        )

    def _pieces(
        self, ids: NDArray[np.uint32], pictures: Sequence[Picture], owner: int, bad: dict[int, str]
    ) -> list[tuple[int, int, list[tuple[int, Picture]]]]:
        """Return start, stop and (first placeholder, image) of a document's pieces; none, and `bad`, where none fit."""
        sizes = [picture.geometry.tokens for picture in pictures]
        found = np.flatnonzero(ids == self._placeholder)
        if len(found) != sum(sizes):
            bad[owner] = f"its text spells the placeholder {self._name!r}, which stands for images alone; remove it"
            return []
        places = [int(found[first]) for first in accumulate(sizes[:-1], initial=0)] if sizes else []
        blocks = [
            (place - len(self._start), place + size + len(self._end)) for place, size in zip(places, sizes, strict=True)
        ]
        pieces = cut(len(ids), blocks, limit=self._max_tokens, closed=bool(self._end))
        if pieces is None:
            bad[owner] = self._too_large(max(sizes))
            return []
        if len(pieces) > 1:
            pieces = {"split": pieces, "truncate": pieces[:1], "drop": []}[self._long]
        held = list(zip(places, pictures, strict=True))
        return [(a, b, [(place, picture) for place, picture in held if a <= place < b]) for a, b in pieces]

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
