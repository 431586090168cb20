"""Build the image benchmark's corpus, once: `python benchmarks/image_data.py [folder] [--large]`.

By default bench-data/images; JPEG tiles of 960 x 640 pixels, cut from the wallpapers of Debian packages after they were
made half as large. With --large, bench-data/images-large and tiles of 1,920 x 1,280 of the wallpapers as they are. Each
has its wallpaper's name and its place there as a caption; samples of .jpg and .txt in images-*.tar. tokenizer.json
knows the captions' bytes and <|image|> and <|endoftext|>. about.json says how many images and bytes there are.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import shutil
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples" / "demo"))

from fetch import fetch_package

PACKAGES = (
    "plasma-workspace-wallpapers",
    "gnome-backgrounds",
    "mate-backgrounds",
    "ukui-wallpapers",
    "lomiri-wallpapers-16.04",
    "lomiri-wallpapers-20.04",
)
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp"}
# A tile's width and height, and how much smaller the wallpaper is made first.
SMALL, LARGE = (960, 640, 2), (1920, 1280, 1)
# Of one wallpaper, so that none outweighs the others.
MAX_TILES = 12
SHARD_IMAGES = 64
QUALITY = 90


def main() -> None:
    """Build what isn't there yet, and say what there is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--large", action="store_true")
    arguments = parser.parse_args()
    folder = arguments.folder or Path("bench-data/images-large" if arguments.large else "bench-data/images")
    print(json.dumps(build_images(folder, LARGE if arguments.large else SMALL), indent=1))


def build_images(folder: Path, tile: tuple[int, int, int]) -> dict[str, Any]:
    """Return what about.json says of the folder, after building it where it isn't there."""
    summary = folder / "about.json"
    if summary.is_file():
        known: dict[str, Any] = json.loads(summary.read_text())
        return known
    packages = folder / "packages"
    # What an interrupted build left; the folder may hold other things too.
    shutil.rmtree(packages, ignore_errors=True)
    for shard in folder.glob("images-*.tar"):
        shard.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    trees = [tree for name in PACKAGES if (tree := fetch_package((name,), packages))]
    if not trees:
        raise SystemExit("no package of wallpapers can be fetched here with apt-get; run it on Debian, with a mirror")
    tiles = [found for path in wallpapers(trees) for found in cut(path, *tile)]
    # No shard has a topic, and no machine another order.
    tiles.sort(key=lambda found: hashlib.sha256(found[1]).digest())
    shards = [tiles[start : start + SHARD_IMAGES] for start in range(0, len(tiles), SHARD_IMAGES)]
    for number, shard in enumerate(shards):
        with tarfile.open(folder / f"images-{number:03d}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for index, (caption, data) in enumerate(shard, start=number * SHARD_IMAGES):
                _add(archive, f"{index:07d}.jpg", data)
                _add(archive, f"{index:07d}.txt", caption.encode())
    _tokenizer().save(str(folder / "tokenizer.json"))
    shutil.rmtree(packages)
    about = {
        "packages": [tree.name for tree in trees],
        "images": len(tiles),
        "width": tile[0],
        "height": tile[1],
        "mean_bytes": sum(len(data) for _, data in tiles) // len(tiles),
    }
    summary.write_text(json.dumps(about, indent=1) + "\n")
    return about


def wallpapers(trees: list[Path]) -> Iterator[Path]:
    """Yield the image files of unpacked packages, each once, in the order of their names."""
    for tree in trees:
        for path in sorted(tree.rglob("*")):
            if path.suffix.lower() in SUFFIXES and path.is_file() and not path.is_symlink():
                yield path


def cut(path: Path, width: int, height: int, smaller: int) -> Iterator[tuple[str, bytes]]:
    """Yield captions and JPEG tiles of a wallpaper."""
    with Image.open(path) as image:
        small = image.convert("RGB")
    if smaller > 1:
        small = small.resize((small.width // smaller, small.height // smaller), Image.Resampling.LANCZOS)
    name = path.stem.replace("_", " ")
    places = [
        (left, top)
        for top in range(0, small.height - height + 1, height)
        for left in range(0, small.width - width + 1, width)
    ]
    for left, top in places[:MAX_TILES]:
        buffer = io.BytesIO()
        small.crop((left, top, left + width, top + height)).save(buffer, "JPEG", quality=QUALITY)
        yield f"{name}, {left} from the left, {top} from the top of {path.parent.name}", buffer.getvalue()


def _tokenizer() -> Tokenizer:
    """Return a byte tokenizer: captions are a detail here."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|image|>", "<|endoftext|>"])
    return tokenizer


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


if __name__ == "__main__":
    main()
