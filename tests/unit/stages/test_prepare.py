"""Orders to pages: the reader's samples, through the stage, with places in what is said of bad ones."""

from __future__ import annotations

import json
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stage_runs import encode

from zephon.config import Source, Tokenizer
from zephon.errors import ConfigError
from zephon.formats.index import build_index
from zephon.page import Order, Page
from zephon.stages.prepare import PrepareSpec, build_prepare
from zephon.tokenizer import LoadedTokenizer

TEXTS = ["hello world", "", "two words", None, "it's", "日本語"]


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "web-0.jsonl"
    path.write_text("".join(json.dumps({"other": 1} if text is None else {"body": text}) + "\n" for text in TEXTS * 3))
    return path


def spec_of(shard: Path, tokenizer: Tokenizer | None, stage: dict[str, Any]) -> PrepareSpec:
    source = Source(path=str(shard), stage=stage, block_samples=8)
    return PrepareSpec(seed=1, tokenizer=tokenizer, sources={"web": source})


def order_of(spec: PrepareSpec, block: int, samples: tuple[int, ...], *, epoch: int = 0) -> Order:
    index = build_index("web", spec.sources["web"], index_dir=None)
    return Order(source="web", epoch=epoch, block=block, location=index.location(block), samples=samples)


def documents_of(page: Page) -> list[list[int]]:
    return [tokens.tolist() for tokens in np.split(page.tokens, page.offsets[1:-1]) if len(tokens)]


def equal(one: Page, other: Page) -> bool:
    def plain(page: Page) -> list[Any]:
        arrays = [page.tokens, page.offsets, page.counts, page.mask, page.meta]
        return [None if array is None else array.tolist() for array in arrays] + [page.bad, page.block_hash]

    return plain(one) == plain(other)


def test_a_page_answers_its_order(shard: Path, tokenizer_config: Tokenizer, tokenizer: LoadedTokenizer) -> None:
    spec = spec_of(shard, tokenizer_config, {"field": "body"})
    # Block 1 holds the shard's samples 8 to 15; sample 9 has no text.
    page = build_prepare(spec)(order_of(spec, 1, (4, 1, 0, 7)))
    words = {number: TEXTS[number % len(TEXTS)] for number in (12, 9, 8, 15)}
    expected = [[*encode(tokenizer, text), tokenizer.eos_id] for text in words.values() if text]
    assert documents_of(page) == expected
    assert page.counts.tolist() == [1, 0, 1, 0]
    assert page.bad == (
        (1, "web-0.jsonl, sample 9: no member 'body' (has: 'other'); set sources.web.stage.field to one of these"),
        (3, "web-0.jsonl, sample 15: no member 'body' (has: 'other'); set sources.web.stage.field to one of these"),
    )


def test_a_sample_with_a_name_is_named(tmp_path: Path, tokenizer_config: Tokenizer) -> None:
    import io
    import tarfile

    path = tmp_path / "web-0.tar"
    with tarfile.open(path, "w") as tar:
        for name in ("a/1.jpg", "a/1.json", "a/2.txt"):
            member = tarfile.TarInfo(name)
            member.size = 2
            tar.addfile(member, io.BytesIO(b"hi"))
    spec = spec_of(path, tokenizer_config, {})
    page = build_prepare(spec)(order_of(spec, 0, (0, 1)))
    assert page.bad == (
        (
            0,
            "web-0.tar, sample 0 ('a/1'): no member 'txt' (has: 'jpg', 'json'); "
            "set sources.web.stage.field to one of these",
        ),
    )
    assert page.counts.tolist() == [0, 1]


def test_a_spec_can_be_sent_and_pages_are_functions_of_it(shard: Path, tokenizer_config: Tokenizer) -> None:
    spec = spec_of(shard, tokenizer_config, {"field": "body", "fim": {"rate": 1}})
    order = order_of(spec, 0, (0, 2, 4, 5))
    page = build_prepare(spec)(order)
    assert equal(build_prepare(pickle.loads(pickle.dumps(spec)))(order), page)


def test_chance_is_keyed_by_sample_epoch_and_seed_not_by_the_order(shard: Path, tokenizer_config: Tokenizer) -> None:
    stage = {"field": "body", "fim": {"rate": 1}}
    spec = spec_of(shard, tokenizer_config, stage)
    prepare = build_prepare(spec)
    together = documents_of(prepare(order_of(spec, 0, (0, 2, 4, 5))))
    alone = [documents_of(prepare(order_of(spec, 0, (number,))))[0] for number in (0, 2, 4, 5)]
    assert together == alone
    assert documents_of(prepare(order_of(spec, 0, (5, 4, 2, 0)))) == alone[::-1]
    later = documents_of(prepare(order_of(spec, 0, (0, 2, 4, 5), epoch=1)))
    assert later != together
    # Sample 6 has sample 0's text, and a cut of its own.
    others = {tuple(documents_of(prepare(order_of(spec, 0, (number,), epoch=2)))[0]) for number in (0, 6)}
    assert len(others) == 2


def test_threads_may_share_it(shard: Path, tokenizer_config: Tokenizer) -> None:
    spec = spec_of(shard, tokenizer_config, {"field": "body", "fim": {}})
    prepare = build_prepare(spec)
    orders = [order_of(spec, block, (0, 1)) for block in (0, 1, 2)] * 5
    expected = [prepare(order) for order in orders]
    pages: list[list[Page]] = []
    threads = [threading.Thread(target=lambda: pages.append([prepare(order) for order in orders])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pages) == 4
    assert all(equal(page, same) for made in pages for page, same in zip(made, expected, strict=True))


def test_what_cannot_work_is_refused_before_any_order(shard: Path, tokenizer_config: Tokenizer) -> None:
    with pytest.raises(ConfigError, match=r"sources\.web\.stage turns text into tokens, but no tokenizer is set"):
        build_prepare(spec_of(shard, None, {"field": "body"}))
    with pytest.raises(ConfigError, match=r"sources\.web\.stage \(text\): .*unknown field `fild`"):
        build_prepare(spec_of(shard, tokenizer_config, {"fild": "body"}))


def test_tokens_need_no_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "tokens.jsonl"
    path.write_text('{"ids": [1, 2, 3]}\n{"ids": []}\n{"ids": [4]}\n')
    spec = spec_of(path, None, {"kind": "tokens", "field": "ids"})
    page = build_prepare(spec)(order_of(spec, 0, (2, 1, 0)))
    assert documents_of(page) == [[4], [1, 2, 3]]
    assert page.counts.tolist() == [1, 0, 1]
    assert (page.mask, page.meta, page.bad) == (None, None, ())
