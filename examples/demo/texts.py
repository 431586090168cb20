"""Read real texts from folders of files, and choose some of them in an order that only their bytes decide."""

from __future__ import annotations

import gzip
import html
import re
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

MIN_CHARS = 200
MAX_CHARS = 200_000
MAX_FILE_BYTES = 8 << 20

_INVISIBLE = re.compile(r"<(script|style|head|nav|header|footer|aside)\b.*?</\1>|<!--.*?-->", re.S | re.I)
_BREAK = re.compile(r"<(?:br|/p|/li|/tr|/h\d|/div|/pre|/dt|/dd)\b[^>]*>", re.I)
_TAG = re.compile(r"<[^>]*>")
_INDENT = re.compile(r"[ \t\xa0]*\n[ \t\xa0]*")
_BLANK = re.compile(r"\n{3,}")


class Text(NamedTuple):
    """A text and where it comes from (a path below the folder that was read)."""

    path: str
    text: str


def read_texts(root: Path, patterns: Sequence[str]) -> Iterator[Text]:
    """Yield the texts of the files below `root` that match a pattern, cleaned, in the order of their paths.

    HTML becomes plain text, .gz is decompressed. Files that aren't UTF-8 are left out, and so
    are those shorter than 200 characters; longer ones than 200,000 are cut to that.
    """
    found = {path for pattern in patterns for path in root.rglob(pattern)}
    for path in sorted(found):
        if path.is_file() and not path.is_symlink() and path.stat().st_size <= MAX_FILE_BYTES:
            text = read_text(path)
            if text is not None and len(text) >= MIN_CHARS:
                yield Text(str(path.relative_to(root)), text[:MAX_CHARS])


def read_text(path: Path) -> str | None:
    """Return a file's text, cleaned, or None where it isn't UTF-8 text."""
    data = path.read_bytes()
    try:
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        text = data.decode()
    except (UnicodeDecodeError, OSError, EOFError):
        return None
    if "\0" in text:
        return None
    if path.suffix == ".html":
        text = plain(text)
    return text.replace("\r\n", "\n").strip() + "\n"


def plain(page: str) -> str:
    """Return the visible text of an HTML page, about one line a block."""
    page = _INVISIBLE.sub(" ", page)
    page = html.unescape(_TAG.sub("", _BREAK.sub("\n\n", page)))
    return _BLANK.sub("\n\n", _INDENT.sub("\n", page))


def choose(texts: Iterable[Text], max_bytes: int) -> list[Text]:
    """Return distinct texts of about `max_bytes` bytes in all, ordered by a hash of their content.

    The order doesn't depend on the file system, and a part of it is a fair sample of the whole.
    """
    by_digest = {blake2b(text.text.encode(), digest_size=16).digest(): text for text in texts}
    chosen: list[Text] = []
    room = max_bytes
    for digest in sorted(by_digest):
        text = by_digest[digest]
        room -= len(text.text.encode())
        if room < 0:
            break
        chosen.append(text)
    return chosen
