"""A written stream with images as the oracle sees it: its blocks' documents, as its stages make them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oracle_plan import Corpus, Doc, Plan

from zephon import load_config
from zephon.engine.setup import open_indices
from zephon.page import HASH, NUMBER, PATCHES, PLACE, Order, Page
from zephon.plan import lane_spec
from zephon.stages.prepare import PrepareSpec, build_prepare


def oracle_plan(raw: Mapping[str, Any]) -> Plan:
    """Return the plan of a configuration; documents are those of its stages, which have tests of their own."""
    config = load_config(raw)
    indices = open_indices(config)
    spec = lane_spec(config, indices, config.lanes or 1)
    prepare = build_prepare(
        PrepareSpec(
            seed=config.seed,
            tokenizer=config.tokenizer,
            sources=config.sources,
            index_dir=config.index_dir,
            capacity=config.sequence_length + 1,
            long=config.pack.long,
        )
    )
    corpora = {}
    for source in spec.sources:
        index = indices[source.name]
        blocks = []
        for block in range(index.num_blocks):
            samples = tuple(range(index.samples_in(block)))
            page = prepare(Order(source.name, 0, block, index.location(block), samples))
            blocks.append(documents_of(page, spec.metadata[source.name]))
        corpora[source.name] = Corpus(blocks=tuple(blocks), mean_tokens=source.mean_tokens)
    return Plan(
        seed=config.seed,
        lanes=config.lanes or 1,
        sequence_length=config.sequence_length,
        sources=corpora,
        entries=((0, dict.fromkeys(corpora, 1)),),
        kind=config.pack.kind,
        pool=config.pack.pool,
        long=config.pack.long,
        align=config.pack.align,
        homogeneous=config.pack.homogeneous,
        max_age=config.pack.max_age,
        spread=config.spread,
        pad=prepare_pad(raw),
        budgets=tuple(config.pack.budgets.items()),
    )


def prepare_pad(raw: Mapping[str, Any]) -> int:
    """Return the id of the configuration's pad token."""
    from zephon.tokenizer import load_tokenizer

    tokenizer = load_config(raw).tokenizer
    return 0 if tokenizer is None else load_tokenizer(tokenizer).pad_id


def documents_of(page: Page, metadata: tuple[str, ...]) -> tuple[tuple[Doc, ...], ...]:
    """Return the documents of a page, sample by sample."""
    samples: list[tuple[Doc, ...]] = []
    document = 0
    for count in page.counts.tolist():
        docs = []
        for number in range(document, document + count):
            start, stop = page.offsets[number : number + 2].tolist()
            images = []
            for row in () if page.attachments is None else page.attachments.tolist():
                if start <= row[PLACE] < stop:
                    shape = [value for at, value in enumerate(row) if at not in (PLACE, NUMBER, PATCHES, HASH)]
                    images.append((row[PLACE] - start, *shape, row[HASH] % 2**64))
            docs.append(
                Doc(
                    tokens=tuple(page.tokens[start:stop].tolist()),
                    mask=None if page.mask is None else tuple(page.mask[start:stop].tolist()),
                    amounts=() if page.meta is None else tuple(zip(metadata, page.meta[number].tolist(), strict=True)),
                    images=tuple(images),
                )
            )
        document += count
        samples.append(tuple(docs))
    return tuple(samples)
