"""The first stateless pass: an order for samples of a block becomes a page of documents."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import PurePath

import msgspec

from zephon.config import Source, Spill, Tokenizer
from zephon.errors import DataError
from zephon.formats.read import read_samples
from zephon.formats.sample import Sample
from zephon.page import Order, Page
from zephon.random import SampleRandom, sample_random
from zephon.stages.stage import Stage, stage_config, stage_fields
from zephon.tokenizer import load_tokenizer

Prepare = Callable[[Order], Page]


class PrepareSpec(msgspec.Struct, frozen=True, kw_only=True):
    """All that a worker needs to answer orders: plain data, so that it can be sent to one.

    seed, tokenizer, sources, spill and index_dir are those of the configuration.
    """

    seed: int
    tokenizer: Tokenizer | None
    sources: dict[str, Source]
    spill: Spill = Spill()
    index_dir: str | None = None


class _Work(msgspec.Struct, frozen=True):
    stage: Stage
    columns: tuple[str, ...] | None


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
        config = stage_config(source.stage, place=place)
        works[name] = _Work(config.build(tokenizer, place=place), stage_fields(config))

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
        )

        def random(number: int) -> SampleRandom:
            return sample_random(
                seed=spec.seed,
                source=order.source,
                epoch=order.epoch,
                block=order.block,
                sample=order.samples[number],
            )

        documents = work.stage.documents(samples, random)
        if len(documents.counts) != len(order.samples):
            raise DataError(
                f"sources.{order.source}.stage gave counts for {len(documents.counts)} samples of "
                f"{len(order.samples)}; correct the stage"
            )
        return Page(
            tokens=documents.tokens,
            offsets=documents.offsets,
            counts=documents.counts,
            mask=documents.mask,
            meta=documents.meta,
            bad=tuple(
                (number, f"{_place(order, number, samples[number])}: {message}") for number, message in documents.bad
            ),
            block_hash=block_hash,
            seconds=time.perf_counter() - began,
        )

    return prepare


def _place(order: Order, number: int, sample: Sample) -> str:
    shard = PurePath(order.location.path).name
    ordinal = order.location.first + order.samples[number]
    # Where samples have no names of their own, the number is the key.
    name = "" if sample.key == str(ordinal) else f" ({sample.key!r})"
    return f"{shard}, sample {ordinal}{name}"
