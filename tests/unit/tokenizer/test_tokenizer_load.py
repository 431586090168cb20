"""Engines give the reference's ids, whichever runs; nothing of the file but its ids has an effect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_tokenizer import SPECIAL, make_small_tokenizer
from tokenizers import Tokenizer as HfTokenizer
from tokenizers import decoders, models, pre_tokenizers

from zephon.config import Tokenizer
from zephon.errors import ConfigError, DataError
from zephon.tokenizer import LoadedTokenizer, load, load_tokenizer
from zephon.tokenizer.probe import PROBE_TEXTS, probe_texts

# A file of one's own to test with, beside the small one: ZEPHON_TOKENIZERS=a/tokenizer.json:b/tokenizer.json
REAL = [path for path in os.environ.get("ZEPHON_TOKENIZERS", "").split(":") if path]


@pytest.fixture(scope="module")
def engines(tokenizer_path: Path) -> tuple[LoadedTokenizer, LoadedTokenizer]:
    pytest.importorskip("fastokens")
    path = str(tokenizer_path)
    return load_tokenizer(Tokenizer(path=path, engine="hf")), load_tokenizer(Tokenizer(path=path, engine="fastokens"))


def split(tokens: np.ndarray, offsets: np.ndarray) -> list[list[int]]:
    return [tokens[start:stop].tolist() for start, stop in pairwise(offsets.tolist())]


def ids(tokenizer: LoadedTokenizer, texts: list[str]) -> list[list[int]]:
    return split(*tokenizer.encode_batch(texts))


TEXTS = st.lists(
    st.one_of(st.text(max_size=60), st.sampled_from(PROBE_TEXTS), st.sampled_from(SPECIAL)), max_size=4
).map("".join)


@settings(max_examples=300)
@given(texts=st.lists(TEXTS, max_size=5))
def test_engines_give_equal_ids(engines: tuple[LoadedTokenizer, LoadedTokenizer], texts: list[str]) -> None:
    reference, fast = engines
    assert (reference.engine, fast.engine) == ("hf", "fastokens")
    assert ids(fast, texts) == ids(reference, texts)


def test_engines_agree_on_every_probe_text(engines: tuple[LoadedTokenizer, LoadedTokenizer]) -> None:
    reference, fast = engines
    texts = probe_texts(list(SPECIAL))
    assert len(texts) > 60
    assert ids(fast, texts) == ids(reference, texts)


@pytest.mark.parametrize("engine", ["hf", "fastokens"])
def test_a_batch_is_its_texts_one_by_one(tokenizer_path: Path, engine: str) -> None:
    if engine == "fastokens":
        pytest.importorskip("fastokens")
    tokenizer = load_tokenizer(Tokenizer(path=str(tokenizer_path), engine=engine))
    texts = list(PROBE_TEXTS)
    tokens, offsets = tokenizer.encode_batch(texts)
    assert (tokens.dtype, offsets.dtype) == (np.uint32, np.int64)
    assert split(tokens, offsets) == [ids(tokenizer, [text])[0] for text in texts]
    assert ids(tokenizer, []) == []


def test_whether_the_engine_may_use_threads_changes_no_id(
    tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = load_tokenizer(Tokenizer(path=str(tokenizer_path), engine="hf"))
    texts = [*PROBE_TEXTS, "", "a"]
    found = []
    for value in ("true", "false", ""):
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", value)
        found += [ids(tokenizer, texts), ids(tokenizer, [])]
    assert found[0::2] == [found[0]] * 3
    assert found[1::2] == [[]] * 3


def test_in_a_worker_process_the_engine_has_a_thread_of_its_own(
    tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [*PROBE_TEXTS, ""]
    expected = ids(load_tokenizer(Tokenizer(path=str(tokenizer_path), engine="hf")), texts)
    monkeypatch.setenv("ZEPHON_WORKER", "1")
    tokenizer = load_tokenizer(Tokenizer(path=str(tokenizer_path), engine="hf"))
    assert ids(tokenizer, texts) == expected
    started = [thread for thread in threading.enumerate() if thread.name.startswith("zephon-encode")]
    assert len(started) == 1
    with pytest.raises(DataError, match="the tokenizer can't encode a text"):
        tokenizer.encode_batch(["\ud800"])


def test_nothing_is_added_cut_or_padded(tmp_path: Path) -> None:
    trained = make_small_tokenizer()
    expected = trained.encode("hello world " * 50, add_special_tokens=False).ids
    assert trained.encode("hello").ids != trained.encode("hello", add_special_tokens=False).ids
    trained.enable_truncation(3)
    trained.enable_padding(length=500)
    trained.save(str(tmp_path / "tokenizer.json"))
    for engine in ("hf", "auto"):
        tokenizer = load_tokenizer(Tokenizer(path=str(tmp_path), engine=engine))
        assert ids(tokenizer, ["hello world " * 50, ""]) == [expected, []]


def test_text_that_spells_a_special_token_gives_its_id(tokenizer_path: Path) -> None:
    tokenizer = load_tokenizer(Tokenizer(path=str(tokenizer_path), eos="<|endoftext|>"))
    assert ids(tokenizer, ["<|endoftext|>"]) == [[tokenizer.eos_id]]
    assert tokenizer.eos_id in ids(tokenizer, ["a<|endoftext|>b"])[0][1:-1]


def write(tokenizer: HfTokenizer, folder: Path) -> str:
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    return str(path)


def words(folder: Path) -> str:
    tokenizer = HfTokenizer(models.WordLevel({"a": 0, "b": 1, "[EOS]": 2}))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return write(tokenizer, folder)


def test_auto_takes_hf_where_the_other_engine_cannot(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(Tokenizer(path=words(tmp_path), eos="[EOS]"))
    assert tokenizer.engine == "hf"
    assert ids(tokenizer, ["a b b"]) == [[0, 1, 1]]


def test_an_engine_asked_for_by_name_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tokenizer\.engine=fastokens .*set tokenizer\.engine: auto"):
        load_tokenizer(Tokenizer(path=words(tmp_path), engine="fastokens"))


def test_text_that_cannot_be_encoded_is_a_data_error(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(Tokenizer(path=words(tmp_path)))
    with pytest.raises(DataError, match="can't encode a text"):
        tokenizer.encode_batch(["a b", "a c"])


def test_an_engine_whose_ids_differ_is_refused(tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def off_by_one(tokenizer: object) -> object:
        encode = load.hf_encode(tokenizer)

        def wrong(texts: list[str]) -> object:
            tokens, offsets = encode(texts)
            return np.where(tokens == tokens.max(), tokens - 1, tokens), offsets

        return wrong

    monkeypatch.setattr(load, "fastokens_engine", load.hf_engine)
    monkeypatch.setattr(load, "fastokens_encode", off_by_one)
    auto = load_tokenizer(Tokenizer(path=str(tokenizer_path)))
    assert auto.engine == "hf"
    with pytest.raises(ConfigError, match="gives other ids than Hugging Face's engine for '"):
        load_tokenizer(Tokenizer(path=str(tokenizer_path), engine="fastokens"))


@pytest.mark.parametrize("engine", ["auto", "fastokens"])
def test_the_reference_encodes_what_the_fast_engine_fails_on(
    tokenizer_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    def limited(tokenizer: object) -> object:
        encode = load.hf_encode(tokenizer)

        def fails(texts: list[str]) -> object:
            if "too hard" in texts:
                raise DataError("match limit")
            return encode(texts)

        return fails

    monkeypatch.setattr(load, "fastokens_engine", load.hf_engine)
    monkeypatch.setattr(load, "fastokens_encode", limited)
    tokenizer = load_tokenizer(Tokenizer(path=str(tokenizer_path), engine=engine))
    reference = load_tokenizer(Tokenizer(path=str(tokenizer_path), engine="hf"))
    for texts in (["easy", "too hard"], ["easy"]):
        assert ids(tokenizer, texts) == ids(reference, texts)
    assert tokenizer.engine == "fastokens"


def test_joins_tells_whether_pieces_may_be_encoded_apart(tokenizer_path: Path, tmp_path: Path) -> None:
    assert load_tokenizer(Tokenizer(path=str(tokenizer_path))).joins
    spaced = make_small_tokenizer()
    spaced.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    assert not load_tokenizer(Tokenizer(path=write(spaced, tmp_path))).joins
    spaced.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    spaced.decoder = decoders.Metaspace(prepend_scheme="always")
    assert not load_tokenizer(Tokenizer(path=write(spaced, tmp_path))).joins


def test_a_file_whose_ids_are_not_those_of_the_engine_is_refused(tokenizer_path: Path, tmp_path: Path) -> None:
    content = json.loads(tokenizer_path.read_text())
    content["added_tokens"].append({**content["added_tokens"][0], "content": "<|new|>", "id": 9999})
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    engine_id = HfTokenizer.from_file(str(path)).token_to_id("<|new|>")
    assert engine_id != 9999
    with pytest.raises(ConfigError, match=rf"'<\|new\|>' the id 9999, but Hugging Face's engine {engine_id}"):
        load_tokenizer(Tokenizer(path=str(path), eos="<|new|>"))


def test_threads_may_share_a_tokenizer(tokenizer_path: Path) -> None:
    tokenizer = load_tokenizer(Tokenizer(path=str(tokenizer_path)))
    texts = list(PROBE_TEXTS)
    expected = ids(tokenizer, texts)
    results: list[list[list[int]]] = []
    threads = [threading.Thread(target=lambda: results.append(ids(tokenizer, texts))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads in /proc")
def test_fastokens_starts_no_threads_and_leaves_the_environment_alone(tokenizer_path: Path) -> None:
    pytest.importorskip("fastokens")
    code = f"""
import os
from zephon.config import Tokenizer
from zephon.tokenizer.file import read_tokenizer_file
from zephon.tokenizer.engines import fastokens_encode, fastokens_engine
before = dict(os.environ)
encode = fastokens_encode(fastokens_engine(read_tokenizer_file(Tokenizer(path={str(tokenizer_path)!r}))))
threads = len(os.listdir("/proc/self/task"))
for _ in range(3):
    encode(["some text, " * 500] * 64)
assert dict(os.environ) == before
assert len(os.listdir("/proc/self/task")) == threads
"""
    subprocess.run([sys.executable, "-c", code], check=True)


if REAL:  # so that their absence makes no noise

    @pytest.mark.parametrize("path", REAL)
    def test_engines_give_equal_ids_with_real_tokenizers(path: str) -> None:
        reference = load_tokenizer(Tokenizer(path=path, engine="hf"))
        fast = load_tokenizer(Tokenizer(path=path, engine="fastokens"))
        texts = [
            *PROBE_TEXTS,
            "".join(PROBE_TEXTS),
            *("".join(pair) for pair in zip(PROBE_TEXTS, PROBE_TEXTS[7:], strict=False)),
        ]
        assert ids(fast, texts) == ids(reference, texts)
