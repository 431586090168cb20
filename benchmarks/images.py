"""Images a second: the bare loop of decoding and resizing, Zephon, and webdataset with Pillow, on the same images.

`python benchmarks/images.py [--rule fixed|native] [--backend threads|processes] [--repeats 3] [--seconds 15]`

bare        two threads that decode and resize JPEGs which are in memory already; uint8 pixels, and nothing else
values      the same, and the pixel values of 8 images at a time, float32
host        Zephon up to what it uploads to a GPU: rows of 2,048 tokens with their images, uint8 pixels
zephon      the same as CPU tensors, [4, 2048] a micro-batch, with float32 pixel values
webdataset  a webdataset pipeline in DataLoader(num_workers=2): Pillow decodes and resizes, float32 pixel values and the
            caption's tokens, 8 images a batch

Each is measured in a process of its own, in turn, after its first seconds; rates are medians, per second and, for
machines that others use too, per second of processor time of the process and its workers. Needs bench-data/images, or
with --large bench-data/images-large (benchmarks/image_data.py builds them).
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import statistics
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

DATA = Path("bench-data")
KINDS = ("bare", "values", "host", "zephon", "webdataset")
RULES: dict[str, dict[str, Any]] = {
    "fixed": {"kind": "fixed", "size": 448, "patch": 14, "merge": 2},
    # About as many pixels as the fixed ones have.
    "native": {"kind": "native", "max_pixels": 448 * 448},
}
BATCH = 8
WORKERS = 2
WARM_S = 6.0


def main() -> None:
    arguments = read_arguments()
    if arguments.measure:
        measure = {"bare": bare, "values": values, "host": host, "zephon": zephon, "webdataset": webdataset}[
            arguments.measure
        ]
        print(json.dumps(measure(arguments)))
        return
    results: dict[str, list[dict[str, float]]] = {kind: [] for kind in arguments.kinds}
    for _ in range(arguments.repeats):
        for kind, found in results.items():
            command = [sys.executable, __file__, *sys.argv[1:], "--measure", kind]
            found.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    print(f"rule={arguments.rule} backend={arguments.backend} seconds={arguments.seconds} repeats={arguments.repeats}")
    for unit in ("images_s", "images_cpu_s"):
        rates = {kind: statistics.median(one[unit] for one in found) for kind, found in results.items()}
        for kind, rate in rates.items():
            alone = ", ".join(f"{one[unit]:.0f}" for one in results[kind])
            ratios = ", ".join(f"{rate / other:.2f} x {name}" for name, other in rates.items() if name != kind)
            print(f"{kind:<10}  {rate:6.0f} {unit} ({alone}): {ratios}")
    for kind, found in results.items():
        print(f"{kind:<10}  {' '.join(f'{name}={value:.2f}' for name, value in found[-1].items() if 'gb' in name)}")


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rule", choices=tuple(RULES), default="fixed")
    parser.add_argument("--backend", choices=("threads", "processes", "inline"), default="threads")
    parser.add_argument("--large", action="store_true", help="images of 1,920 x 1,280 pixels, not of 960 x 640")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--measure", choices=KINDS, help=argparse.SUPPRESS)
    return parser.parse_args()


def folder_of(arguments: argparse.Namespace) -> Path:
    return DATA / ("images-large" if arguments.large else "images")


def pictures(folder: Path) -> list[bytes]:
    """Return the compressed images of all shards."""
    found = []
    for shard in sorted(folder.glob("*.tar")):
        with tarfile.open(shard) as archive:
            found += [archive.extractfile(member).read() for member in archive if member.name.endswith(".jpg")]  # type: ignore[union-attr]
    return found


def bare(arguments: argparse.Namespace) -> dict[str, float]:
    return decode_in_threads(arguments, finish=len)


def values(arguments: argparse.Namespace) -> dict[str, float]:
    import torch

    from zephon.collate.images import PixelBuilder
    from zephon.images.rules import read_rule

    builder = PixelBuilder(read_rule(RULES[arguments.rule], place="rule"), device=torch.device("cpu"))
    return decode_in_threads(
        arguments, finish=lambda batch: builder.build([torch.from_numpy(image)[None] for image in batch])
    )


def decode_in_threads(arguments: argparse.Namespace, *, finish: Callable[[list[Any]], Any]) -> dict[str, float]:
    """Count what two threads decode, resize and `finish` by the batch."""
    # Torch, here and not within the seconds that count.
    import zephon.images.resize  # noqa: F401
    from zephon.images.decode import decode
    from zephon.images.header import read_header
    from zephon.images.rules import read_rule

    rule = read_rule(RULES[arguments.rule], place="rule")
    images = pictures(folder_of(arguments))
    done = [0] * WORKERS
    running = True

    def work(number: int) -> None:
        place = number * len(images) // WORKERS
        while running:
            batch = []
            for _ in range(BATCH):
                data = images[place % len(images)]
                info = read_header(data, max_pixels=1 << 26)
                batch.append(decode(data, info, rule.plan(info)))
                place += 1
            finish(batch)
            done[number] += BATCH

    threads = [threading.Thread(target=work, args=(number,)) for number in range(WORKERS)]
    for thread in threads:
        thread.start()
    time.sleep(WARM_S)
    before, clock = sum(done), Clock()
    time.sleep(arguments.seconds)
    rates = clock.rates(sum(done) - before)
    running = False
    for thread in threads:
        thread.join()
    return {**rates, **memory()}


def zephon(arguments: argparse.Namespace) -> dict[str, float]:
    from zephon import Loader

    with Loader(config_of(arguments)) as loader:
        return count(arguments, iter(loader), lambda batch: len(batch["image_grid_thw"]))


def host(arguments: argparse.Namespace) -> dict[str, float]:
    from zephon import Loader
    from zephon.collate.device import Collator

    def as_it_is(_: Collator, batch: Any) -> Any:
        return batch

    def uploaded(_: Collator, batch: Any) -> Any:
        return Uploaded(batch)

    # Everything but the tensors, which a GPU would make.
    Collator.build, Collator.hand_over = as_it_is, uploaded  # type: ignore[method-assign]
    with Loader(config_of(arguments)) as loader:
        return count(arguments, iter(loader), lambda batch: len(batch["images"]))


class Uploaded(dict[str, Any]):
    """What a Loader needs of a batch, of a host batch."""

    def __init__(self, batch: Any) -> None:
        super().__init__(tokens=batch.tokens, images=batch.images.pixels)
        self.host_bytes = 0


def config_of(arguments: argparse.Namespace) -> dict[str, Any]:
    folder = folder_of(arguments)
    stage = {"kind": "image_text", "images": {"placeholder": "<|image|>", "resize": RULES[arguments.rule]}}
    return {
        "seed": 1,
        "lanes": 8,
        "global_batch_size": 8,
        "micro_batch_size": 4,
        "sequence_length": 2048,
        "sources": {
            "wallpapers": {"path": str(folder / "images-*.tar"), "weight": 1, "stage": stage, "block_samples": 8}
        },
        "tokenizer": {"path": str(folder / "tokenizer.json"), "eos": "<|endoftext|>"},
        "backend": {"kind": arguments.backend, "workers": WORKERS},
        "device": "cpu",
        "index_dir": str(folder / "index"),
    }


def webdataset(arguments: argparse.Namespace) -> dict[str, float]:
    import numpy as np
    import torch
    import webdataset as wds
    from PIL import Image
    from tokenizers import Tokenizer

    from zephon.images.info import ImageInfo
    from zephon.images.rules import read_rule

    rule = read_rule(RULES[arguments.rule], place="rule")
    tokenizer = Tokenizer.from_file(str(folder_of(arguments) / "tokenizer.json"))
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (rule.mean, rule.std))

    def prepare(sample: dict[str, bytes]) -> tuple[torch.Tensor, list[int]]:
        image = Image.open(io.BytesIO(sample["jpg"])).convert("RGB")
        plan = rule.plan(ImageInfo(format="jpeg", width=image.width, height=image.height))
        image = image.resize((plan.width, plan.height), Image.Resampling.BICUBIC)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div_(255)
        return pixels.sub_(mean).div_(std), tokenizer.encode(sample["txt"].decode()).ids

    def batch(samples: list[tuple[torch.Tensor, list[int]]]) -> tuple[torch.Tensor, list[list[int]]]:
        return torch.stack([pixels for pixels, _ in samples]), [tokens for _, tokens in samples]

    shards = [str(shard) for shard in sorted(folder_of(arguments).glob("*.tar"))]
    dataset = wds.WebDataset(shards, resampled=True, shardshuffle=False).map(prepare)
    loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH, num_workers=WORKERS, collate_fn=batch)
    return count(arguments, iter(loader), lambda found: len(found[0]))


def count(arguments: argparse.Namespace, batches: Iterator[Any], images: Callable[[Any], int]) -> dict[str, float]:
    """Count what comes after the first seconds, when all that is read ahead has come to rest."""
    warm = time.perf_counter() + WARM_S
    while time.perf_counter() < warm:
        next(batches)
    done, clock, halfway = 0, Clock(), 0.0
    while clock.seconds() < arguments.seconds:
        done += images(next(batches))
        if not halfway and clock.seconds() > arguments.seconds / 2:
            halfway = memory()["rss_gb"]
    return {**clock.rates(done), "rss_gb_halfway": halfway, **memory()}


class Clock:
    """The time since it was made: on the wall, and on processors, by this process and its children."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._used = used()

    def seconds(self) -> float:
        return time.perf_counter() - self._began

    def rates(self, done: int) -> dict[str, float]:
        return {"images_s": done / self.seconds(), "images_cpu_s": done / (used() - self._used)}


def used() -> float:
    here = psutil.Process()
    times = [process.cpu_times() for process in (here, *here.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def memory() -> dict[str, float]:
    return {"rss_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6}


if __name__ == "__main__":
    main()
