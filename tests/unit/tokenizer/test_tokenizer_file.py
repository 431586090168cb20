"""Reading a tokenizer.json: what fixes the ids, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_tokenizer import make_small_tokenizer
from tokenizers import Tokenizer as HfTokenizer

from zephon.config import Tokenizer
from zephon.errors import ConfigError
from zephon.tokenizer import tokenizer_plan
from zephon.tokenizer.file import read_tokenizer_file


def test_ids_are_those_of_the_engine(tokenizer_path: Path) -> None:
    file = read_tokenizer_file(Tokenizer(path=str(tokenizer_path), eos="<|endoftext|>"))
    reference = HfTokenizer.from_file(str(tokenizer_path))
    assert file.vocabulary.ids == reference.get_vocab(with_added_tokens=True)
    assert file.vocab_size == max(reference.get_vocab().values()) + 1
    assert file.eos_id == reference.token_to_id("<|endoftext|>")


def test_pad_is_its_own_else_eos_else_zero(tokenizer_path: Path) -> None:
    path = str(tokenizer_path)
    ids = read_tokenizer_file(Tokenizer(path=path)).vocabulary.ids
    assert read_tokenizer_file(Tokenizer(path=path, eos="<|im_end|>", pad="<|pad|>")).pad_id == ids["<|pad|>"]
    assert read_tokenizer_file(Tokenizer(path=path, eos="<|im_end|>")).pad_id == ids["<|im_end|>"]
    assert read_tokenizer_file(Tokenizer(path=path)).pad_id == 0


def test_the_plan_knows_bytes_and_ids_but_neither_path_nor_engine(tokenizer_path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.json"
    copy.write_bytes(tokenizer_path.read_bytes())
    plan = tokenizer_plan(Tokenizer(path=str(tokenizer_path), eos="<|endoftext|>"))
    assert tokenizer_plan(Tokenizer(path=str(copy), eos="<|endoftext|>", engine="hf")) == plan
    assert tokenizer_plan(Tokenizer(path=str(copy), eos="<|im_end|>")) != plan
    copy.write_bytes(tokenizer_path.read_bytes() + b"\n")
    assert tokenizer_plan(Tokenizer(path=str(copy), eos="<|endoftext|>")) != plan


def test_a_folder_that_holds_one_will_do(tokenizer_path: Path) -> None:
    folder = Tokenizer(path=str(tokenizer_path.parent))
    assert tokenizer_plan(folder) == tokenizer_plan(Tokenizer(path=str(tokenizer_path)))


@pytest.mark.parametrize("setting", ["eos", "bos", "pad"])
def test_a_missing_token_is_named(tokenizer_path: Path, setting: str) -> None:
    config = Tokenizer(path=str(tokenizer_path), **{setting: "<|end_of_text|>"})
    with pytest.raises(
        ConfigError, match=rf"tokenizer\.{setting}='<\|end_of_text\|>' is no token of .*tokenizer\.json"
    ):
        read_tokenizer_file(config)


def test_a_near_miss_is_suggested(tokenizer_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"similar: '<\|endoftext\|>'"):
        read_tokenizer_file(Tokenizer(path=str(tokenizer_path), eos="<endoftext>"))


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"not json", b"[1, 2]", b'{"model": {}}', b"\xff\xfe", b'{"model": {"vocab": 3}}']
)
def test_what_is_no_tokenizer_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"tokenizer\.json.*set tokenizer\.path") as caught:
        read_tokenizer_file(Tokenizer(path=str(path)))
    assert "\n" not in str(caught.value)


def test_an_empty_vocabulary_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text('{"model": {"vocab": {}}}')
    with pytest.raises(ConfigError, match="empty vocabulary"):
        read_tokenizer_file(Tokenizer(path=str(path)))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"can't read .*nowhere\.json.*No such file.*set tokenizer\.path"):
        read_tokenizer_file(Tokenizer(path=str(tmp_path / "nowhere.json")))


def test_ids_by_chance_are_refused(tmp_path: Path) -> None:
    settings = json.loads(make_small_tokenizer().to_str())
    settings["model"]["dropout"] = 0.1
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match=r"model\.dropout=0\.1.*by chance"):
        read_tokenizer_file(Tokenizer(path=str(path)))
