"""Build the demo's shards, once: three sources in three formats, from real texts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from corpora import Corpus, code, languages, manuals
from shards import write_jsonl, write_parquet, write_tar

MIB = 1 << 20
SHARD_BYTES = 4 * MIB
MANUALS_BYTES = 26 * MIB
LANGUAGES_BYTES = 18 * MIB
CODE_BYTES = 26 * MIB
MIN_BYTES = 50_000_000


def build_data(folder: Path, *, say: Callable[[str], None]) -> dict[str, str]:
    """Return one line a source on what `folder` holds, having built it where it isn't there yet.

    manuals-*.tar (WebDataset), languages-*.jsonl.zst and code-*.parquet, from 50 to 70 MB of text in all,
    in an order that the texts' bytes alone decide. The manifest is written last: a build that was
    interrupted is done again.
    """
    manifest = folder / "manifest.json"
    if manifest.is_file():
        known: dict[str, str] = json.loads(manifest.read_text())
        return known
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    packages = folder / "packages"
    say("manuals: fetching and reading")
    corpora = {"manuals": manuals(packages, MANUALS_BYTES)}
    say("languages: fetching and reading")
    corpora["languages"] = languages(packages, LANGUAGES_BYTES)
    say("code: reading")
    # Code takes up what the others lack, so that a machine without downloads has enough.
    lacking = MANUALS_BYTES + LANGUAGES_BYTES - _size(corpora["manuals"]) - _size(corpora["languages"])
    corpora["code"] = code(CODE_BYTES + lacking)
    say("writing shards")
    write_tar(corpora["manuals"].texts, folder, "manuals", SHARD_BYTES)
    write_jsonl(corpora["languages"].texts, folder, "languages", SHARD_BYTES)
    write_parquet(corpora["code"].texts, folder, "code", SHARD_BYTES)
    total = sum(_size(corpus) for corpus in corpora.values())
    if total < MIN_BYTES or not all(corpus.texts for corpus in corpora.values()):
        raise SystemExit(f"demo: found only {total:,} bytes of text on this machine; {MIN_BYTES:,} are needed")
    about = {name: _describe(corpus) for name, corpus in corpora.items()}
    shutil.rmtree(packages, ignore_errors=True)
    partial = manifest.with_suffix(".partial")
    partial.write_text(json.dumps(about, indent=1) + "\n")
    partial.rename(manifest)
    return about


def _size(corpus: Corpus) -> int:
    return sum(len(text.text.encode()) for text in corpus.texts)


def _describe(corpus: Corpus) -> str:
    return f"{_size(corpus) / 1e6:.1f} MB, {len(corpus.texts):,} texts: {corpus.origin}"
