"""Real pictures with captions in many languages, as shards: Debian's stamps for Tux Paint."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from fetch import fetch_package
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

PACKAGE = "tuxpaint-stamps-default"
LANGUAGES = ("de", "es", "fr", "hu", "pt_BR", "ru")
SHARD_PICTURES = 200
ALBUM = 3
VOCABULARY = 4_096
SPECIAL = ("<|endoftext|>", "<|image|>", "<|begin_image|>", "<|end_image|>")


class Stamp(NamedTuple):
    """A picture's bytes, its English caption, and others by language."""

    png: bytes
    caption: str
    others: dict[str, str]


def build_pictures(folder: Path) -> str:
    """Write shards and a tokenizer into a folder where they aren't there yet, and return what they hold.

    Raises SystemExit where the package can't be had.
    """
    about = folder / "about.txt"
    if not about.is_file():
        tree = fetch_package((PACKAGE,), folder / "packages")
        if tree is None:
            raise SystemExit(f"pictures: the Debian package {PACKAGE} can't be downloaded here; run it where it can")
        stamps = list(read_stamps(tree))
        write_captions(stamps, folder)
        write_albums(stamps, folder)
        train_tokenizer(stamps, folder / "tokenizer.json")
        num_bytes = sum(len(stamp.png) for stamp in stamps)
        about.write_text(f"{len(stamps)} PNG pictures of {PACKAGE}, {num_bytes / 1e6:.0f} MB, captions in English")
    return about.read_text()


def read_stamps(tree: Path) -> Iterator[Stamp]:
    """Yield the package's pictures that have a caption, in the order of their paths."""
    for path in sorted(tree.rglob("*.png")):
        text = path.with_suffix(".txt")
        if not text.is_file():
            continue
        caption, *lines = text.read_text(encoding="utf-8").splitlines() or [""]
        others = dict(line.split(".utf8=", 1) for line in lines if ".utf8=" in line)
        if caption.strip():
            yield Stamp(
                path.read_bytes(), caption.strip(), {name: others[name] for name in LANGUAGES if name in others}
            )


def write_captions(stamps: list[Stamp], folder: Path) -> None:
    """Write captions-000.tar and so on: samples of a .png and a .txt, the English caption."""
    for first in range(0, len(stamps), SHARD_PICTURES):
        path = folder / f"captions-{first // SHARD_PICTURES:03d}.tar"
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
            for number, stamp in enumerate(stamps[first : first + SHARD_PICTURES], start=first):
                for name, data in (("png", stamp.png), ("txt", stamp.caption.encode())):
                    info = tarfile.TarInfo(f"{number:05d}.{name}")
                    info.size = len(data)
                    archive.addfile(info, io.BytesIO(data))


def write_albums(stamps: list[Stamp], folder: Path) -> None:
    """Write albums-000.parquet: three pictures in turn with their captions in one of the languages, and a title."""
    rows = []
    for first in range(0, len(stamps) - ALBUM, ALBUM):
        language = LANGUAGES[first // ALBUM % len(LANGUAGES)]
        texts: list[str | None] = [f"[{language}]\n"]
        images: list[bytes | None] = [None]
        for stamp in stamps[first : first + ALBUM]:
            texts += [None, stamp.others.get(language, stamp.caption) + "\n"]
            images += [stamp.png, None]
        rows.append({"texts": texts, "images": images})
    schema = pa.schema([("texts", pa.list_(pa.string())), ("images", pa.list_(pa.binary()))])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), folder / "albums-000.parquet", row_group_size=16)


def train_tokenizer(stamps: list[Stamp], path: Path) -> None:
    """Write a byte-level BPE trained on all captions."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    captions = (text for stamp in stamps for text in (stamp.caption, *stamp.others.values()))
    tokenizer.train_from_iterator(captions, trainer=trainer)
    tokenizer.save(str(path))
