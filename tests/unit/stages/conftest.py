from __future__ import annotations

import pytest
from small_tokenizer import write_small_tokenizer

from zephon.config import Tokenizer
from zephon.tokenizer import LoadedTokenizer, load_tokenizer


@pytest.fixture(scope="session")
def tokenizer_config(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = write_small_tokenizer(tmp_path_factory.mktemp("stage-tokenizer"))
    return Tokenizer(path=str(path), eos="<|endoftext|>", bos="<|im_start|>")


@pytest.fixture(scope="session")
def tokenizer(tokenizer_config: Tokenizer) -> LoadedTokenizer:
    return load_tokenizer(tokenizer_config)
