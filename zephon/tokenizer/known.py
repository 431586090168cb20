"""What loading a tokenizer.json has found out, kept in the user's cache, so that the next process starts sooner.

A file is the XXH3-64 of what follows (8 bytes), then msgpack. It is written whole or not at all. One that is damaged
or of another version counts as absent; one that can't be written is found out again.
"""

from __future__ import annotations

import os
import threading
from hashlib import blake2b
from pathlib import Path

import msgspec
from xxhash import xxh3_64_digest

from zephon.config import Tokenizer
from zephon.formats.folders import user_cache

# Raised whenever the same tokenizer.json and settings would give other values.
VERSION = 1
CHECK_BYTES = 8


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for a tokenizer.json with some special tokens; see TokenizerFile and LoadedTokenizer for the ids.

    tokenizers  version of `tokenizers` that gives the file's added tokens the file's ids
    joins       with that version
    fastokens   version of `fastokens` that gives that version's ids for all texts of the probe; "": none tested
    probe       digest of those texts
    """

    eos_id: int | None
    bos_id: int | None
    pad_id: int
    vocab_size: int
    tokenizers: str
    joins: bool
    fastokens: str = ""
    probe: str = ""


def recall(digest: str, config: Tokenizer) -> Known | None:
    """Return what is kept for a tokenizer.json of this hash and the configured special tokens."""
    path = _path(digest, config)
    try:
        raw = b"" if path is None else path.read_bytes()
        # Ids are part of the plan: one flipped bit would be another stream.
        if xxh3_64_digest(raw[CHECK_BYTES:]) != raw[:CHECK_BYTES]:
            return None
        return msgspec.msgpack.decode(raw[CHECK_BYTES:], type=Known)
    except (OSError, msgspec.MsgspecError):
        return None


def keep(digest: str, config: Tokenizer, known: Known) -> None:
    """Keep what is known, if the cache can be written."""
    path = _path(digest, config)
    if path is None:
        return
    # Named by who writes, so that writers on several machines never share a temporary file.
    writer = f"{os.uname().nodename}-{os.getpid()}-{threading.get_ident()}"
    temporary = path.with_name(f".{path.name}.{writer}.tmp")
    body = msgspec.msgpack.encode(known)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.write_bytes(xxh3_64_digest(body) + body)
            temporary.rename(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError:
        return


def _path(digest: str, config: Tokenizer) -> Path | None:
    folder = user_cache()
    parts = msgspec.json.encode([VERSION, digest, config.eos, config.bos, config.pad])
    name = blake2b(parts, digest_size=16).hexdigest()
    return None if folder is None else folder / "tokenizers" / f"{name}.zephon-tokenizer"
