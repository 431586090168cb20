"""The stateless passes: an order for samples of a block becomes a page of documents, or of their attachments."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import cast

import msgspec

from zephon.config import Source, Spill, Tokenizer
from zephon.formats.read import read_samples
from zephon.formats.sample import Column, Sample
from zephon.page import Order, Page, Wanted
from zephon.random import SampleRandom, attachment_random, sample_random
from zephon.stages.checked import checked
from zephon.stages.materialise import AttachingStage, materialise
from zephon.stages.stage import Stage, field_settings, fitted_config, stage_fields
from zephon.tokenizer import load_tokenizer

Prepare = Callable[[Order], Page]


class PrepareSpec(msgspec.Struct, frozen=True, kw_only=True):
    """All that a worker needs to answer orders: plain data, so that it can be sent to one.

    seed, tokenizer, sources, spill and index_dir are those of the configuration; documents with attachments are
    cut by `long` where they don't fit rows of `capacity` tokens.
    """

    seed: int
    tokenizer: Tokenizer | None
    sources: dict[str, Source]
    spill: Spill = Spill()
    index_dir: str | None = None
    capacity: int = 1 << 31
    long: str = "split"


class _Work(msgspec.Struct, frozen=True):
    stage: Stage
    columns: tuple[Column, ...] | None
    settings: dict[str, str]


def build_prepare(spec: PrepareSpec) -> Prepare:
    """Return the function that answers orders; it may be called by several threads at once.

    Loads the tokenizer, which takes seconds and some 300 MB: one such function serves a whole process.
    A page is a pure function of the order, the spec and the block's bytes. Raises ConfigError here, and
    StoreError and DataError when called.
    """
    tokenizer = None if spec.tokenizer is None else load_tokenizer(spec.tokenizer)
    works: dict[str, _Work] = {}
    for name, source in spec.sources.items():
        place = f"sources.{name}.stage"
        config = fitted_config(source.stage, capacity=spec.capacity, long=spec.long, place=place)
        works[name] = _Work(config.build(tokenizer, place=place), stage_fields(config), field_settings(config))

    def prepare(order: Order) -> Page:
        began = time.perf_counter()
        work = works[order.source]
        samples, block_hash = read_samples(
            order.location,
            order.samples,
            columns=work.columns,
            spill=spec.spill,
            index_dir=spec.index_dir,
            source=order.source,
            settings=work.settings,
        )

        if order.wanted:

            def attachment(wanted: Wanted) -> SampleRandom:
                return attachment_random(
                    seed=spec.seed,
                    source=order.source,
                    epoch=order.epoch,
                    block=order.block,
                    sample=wanted.sample,
                    number=wanted.number,
                )

            page = materialise(cast(AttachingStage, work.stage), order, samples, attachment, block_hash=block_hash)
            page.bad = _placed(page.bad, order, samples, [order.samples.index(each.sample) for each in order.wanted])
            page.seconds = time.perf_counter() - began
            return page

        def random(number: int) -> SampleRandom:
            return sample_random(
                seed=spec.seed,
                source=order.source,
                epoch=order.epoch,
                block=order.block,
                sample=order.samples[number],
            )

        documents = checked(
            work.stage.documents(samples, random),
            num_samples=len(order.samples),
            place=f"sources.{order.source}.stage",
        )
        return Page(
            tokens=documents.tokens,
            offsets=documents.offsets,
            counts=documents.counts,
            mask=documents.mask,
            meta=documents.meta,
            bad=_placed(documents.bad, order, samples, range(len(samples))),
            block_hash=block_hash,
            seconds=time.perf_counter() - began,
            attachments=documents.attachments,
        )

    return prepare


def _placed(
    bad: Sequence[tuple[int, str]], order: Order, samples: Sequence[Sample], owners: Sequence[int]
) -> tuple[tuple[int, str], ...]:
    """Return faults with the place of the sample that each is of: number i is of the order's sample owners[i]."""
    return tuple(
        (number, f"{_place(order, owners[number], samples[owners[number]])}: {message}") for number, message in bad
    )


def _place(order: Order, number: int, sample: Sample) -> str:
    shard = PurePath(order.location.path).name
    ordinal = order.location.first + order.samples[number]
    # Where samples have no names of their own, the number is the key.
    name = "" if sample.key == str(ordinal) else f" ({sample.key!r})"
    return f"{shard}, sample {ordinal}{name}"
