"""The engines that turn text into ids: Hugging Face `tokenizers` (the reference) and `fastokens`."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock, current_thread, main_thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zephon.errors import ConfigError, DataError
from zephon.tokenizer.file import TokenizerFile

Encoded = tuple[NDArray[np.uint32], NDArray[np.int64]]
Encode = Callable[[Sequence[str]], Encoded]

# Set in the processes that Zephon starts.
WORKER = "ZEPHON_WORKER"
_ENVIRONMENT = Lock()


def hf_engine(file: TokenizerFile) -> Any:
    """Return the file as a `tokenizers.Tokenizer`, without truncation and padding.

    Raises ConfigError where it can't be loaded, or gives a configured token another id than the file says.
    """
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_buffer(file.raw)
    except ValueError as error:
        raise ConfigError(
            f"{file.path!r} can't be loaded: {one_line(error)}; set tokenizer.path to a tokenizer.json"
        ) from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def hf_version() -> str:
    """Return the version of `tokenizers`."""
    from tokenizers import __version__

    return str(__version__)


def hf_encode(tokenizer: Any) -> Encode:
    """Return a function that encodes texts with Hugging Face's engine.

    No special token is added; a text that spells an added token gives its id, as by default there. All
    threads of a process share the engine's one pool of threads. Raises DataError.
    """

    def encode_here(texts: Sequence[str]) -> Encoded:
        found, ends = array("I"), array("q", [0])
        # Where the engine takes a batch's texts one by one, each is dropped before the next: they take much memory.
        step = 1 if _alone() else max(1, len(texts))
        for first in range(0, len(texts), step):
            try:
                encodings = tokenizer.encode_batch_fast(texts[first : first + step], add_special_tokens=False)
            except Exception as error:  # what the engine raises has no type of its own
                raise DataError(f"the tokenizer can't encode a text: {one_line(error)}") from error
            for encoding in encodings:
                found.fromlist(encoding.ids)
                ends.append(len(found))
            del encodings
        return np.frombuffer(found, np.uint32), np.frombuffer(ends, np.int64)

    if WORKER not in os.environ:
        return encode_here
    # glibc's malloc keeps a heap for each thread, and loading a tokenizer leaves one in such pieces that this engine,
    # which lives by small allocations, takes a third longer in it. A worker process ends without waiting for threads.
    own = ThreadPoolExecutor(1, thread_name_prefix="zephon-encode")

    def encode(texts: Sequence[str]) -> Encoded:
        if current_thread() is not main_thread():
            return encode_here(texts)
        return own.submit(encode_here, texts).result()

    return encode


def _alone() -> bool:
    """Return whether `tokenizers` uses the calling thread only."""
    return os.environ.get("TOKENIZERS_PARALLELISM", "true").lower() in ("", "off", "false", "f", "no", "n", "0")


def fastokens_engine(file: TokenizerFile) -> Any:
    """Return the file as a `fastokens.Tokenizer` that runs on the caller's thread.

    Raises ConfigError where the package is missing or doesn't support this tokenizer.
    """
    try:
        from fastokens import Tokenizer
    except ImportError as error:
        raise ConfigError(
            f"tokenizer.engine=fastokens: can't import it ({one_line(error)}); "
            "pip install fastokens, or set tokenizer.engine: auto"
        ) from error
    try:
        with _one_thread():
            tokenizer = Tokenizer.from_json_str(file.raw.decode())
            tokenizer.no_truncation()
            tokenizer.no_padding()
            # The first batch settles for the process how many threads it uses.
            tokenizer.encode_batch_flat(["a", "b"])
    except Exception as error:  # what the engine raises has no type of its own
        raise ConfigError(
            f"tokenizer.engine=fastokens can't load {file.path!r}: {one_line(error)}; set tokenizer.engine: auto"
        ) from error
    return tokenizer


def fastokens_version() -> str:
    """Return the version of `fastokens`; "" where it isn't installed."""
    # Here, because it takes 20 ms and few need it.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("fastokens")
    except PackageNotFoundError:
        return ""


def fastokens_encode(tokenizer: Any) -> Encode:
    """Return a function that encodes texts with fastokens; same ids as `hf_encode`. Raises DataError.

    Its caches are per thread and bounded: +130 MB of memory after 50 MB of distinct words, +0 after
    the next 250 MB.
    """

    def encode(texts: Sequence[str]) -> Encoded:
        try:
            ids, offsets = tokenizer.encode_batch_flat(list(texts))
        except Exception as error:  # what the engine raises has no type of its own
            raise DataError(f"the tokenizer can't encode a text: {one_line(error)}") from error
        # "<": the buffers are little-endian on every machine.
        return np.frombuffer(ids, "<u4"), np.frombuffer(offsets, "<u8").astype(np.int64)

    return encode


def one_line(error: BaseException) -> str:
    """Return an error's text on one line of at most 300 characters."""
    return " ".join(str(error).split())[:300] or type(error).__name__


@contextmanager
def _one_thread() -> Iterator[None]:
    # fastokens has no argument for it. It reads the variable once, so the process gets its environment back.
    with _ENVIRONMENT:
        if "FASTOKENS_BPE_THREADS" in os.environ:
            yield
            return
        os.environ["FASTOKENS_BPE_THREADS"] = "1"
        try:
            yield
        finally:
            del os.environ["FASTOKENS_BPE_THREADS"]
