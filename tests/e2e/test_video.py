"""Streams with clips, through the public door: backends, resumes, frames in time, broken clips."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from clips import ENCODERS, clip, level
from pictures import FIXED, picture_stream, words, write_parquet, write_tars
from streams import take

from zephon import DataError, Loader, Topology, merge_states, stream_digest
from zephon.cli.delivered import Delivered

WAYS: dict[str, dict[str, Any]] = {
    "inline": {"backend": {"kind": "inline", "prefetch": 0}},
    "threads": {"backend": {"kind": "threads", "workers": 3, "prefetch": 3}},
    "processes": {"backend": {"kind": "processes", "workers": 2}},
    "engine process": {"backend": {"kind": "threads"}, "engine": "process"},
}


def video_stream(folder: Path, samples: list[dict[str, bytes]], **stage: Any) -> dict[str, Any]:
    """Return a stream of pictures and of clips."""
    config = picture_stream(folder, sources=("captions",), count=12, settings={"sequence_length": 160})
    look = config["sources"]["captions"]["stage"]["images"]
    path = write_tars(folder / "clips", samples)
    source = {"path": path, "stage": {"kind": "video", "images": look, "frames": 4, **stage}, "block_samples": 4}
    return {**config, "sources": {**config["sources"], "clips": source}}


def samples_of(count: int) -> list[dict[str, bytes]]:
    kinds = list(ENCODERS)
    return [{kinds[n % 3]: clip(kinds[n % 3], 1 + n % 9), "txt": words(n, 3 + n % 11).encode()} for n in range(count)]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return video_stream(tmp_path_factory.mktemp("clips"), samples_of(18))


def read(loader: Loader, delivered: Delivered, batches: int) -> dict[str, Any]:
    for batch in take(loader, batches):
        delivered.add(batch)
    return loader.state_dict()


def test_every_backend_gives_the_same_rows_and_frames(config: dict[str, Any]) -> None:
    found = set()
    for way in WAYS.values():
        delivered = Delivered()
        with Loader({**config, **way}) as loader:
            state = read(loader, delivered, 10)
        found.add((stream_digest(state), delivered.digest(1 << 30)))
    assert len(found) == 1


def test_a_resume_on_other_sizes_goes_on_with_the_same_frames(config: dict[str, Any]) -> None:
    whole = Delivered()
    with Loader(config) as loader:
        middle = read(loader, Delivered(), 4)
        end = stream_digest(read(loader, whole, 6))
    parts, states = Delivered(), []
    for rank in range(4):
        with Loader({**config, "micro_batch_size": 1}, Topology(dp_rank=rank, dp_size=4)) as loader:
            loader.load_state_dict(middle)
            states.append(read(loader, parts, 3))
    assert stream_digest(merge_states(states)) == end
    assert parts.digest(1 << 30) == whole.digest(1 << 30)


@pytest.mark.parametrize("resize", ["native", "fixed"])
def test_frames_come_in_time(tmp_path: Path, resize: str) -> None:
    rows = [{"mp4": clip("mp4", 12), "text": words(n, 5)} for n in range(8)]
    config = video_stream(tmp_path, samples_of(1), text="text")
    source = {**config["sources"]["clips"], "path": write_parquet(tmp_path / "rows", rows)}
    if resize == "fixed":
        look = {**source["stage"]["images"], "resize": FIXED}
        source = {**source, "stage": {**source["stage"], "images": look}}
    with Loader({**config, "sources": {"clips": source}, "length": "count"}) as loader:
        batches = list(loader)
    grids = torch.cat([batch["image_grid_thw"] for batch in batches])
    assert grids.tolist() == [[4, 4, 4] if resize == "fixed" else [2, 6, 8]] * 8
    expected = torch.tensor([level(number) for number in (0, 3, 6, 9)], dtype=torch.float32)
    for batch in batches:
        values = batch["pixel_values"]
        if resize == "fixed":
            # The last pixel of each frame.
            levels = (values[:, 0, -1, -1] * 0.5 + 0.5).mul(255).view(-1, 4)
        else:
            # The last patch of each time holds red of two frames first.
            levels = (values.view(-1, 48, 3, 2, 16)[:, -1, 0, :, -1] * 0.26862954 + 0.48145466).mul(255).view(-1, 4)
        assert levels.sub(expected).abs().max() < 6


def test_a_broken_clip_ends_the_stream_or_is_black_and_not_learned_from(tmp_path: Path) -> None:
    samples = samples_of(12)
    broken = bytearray(clip("mp4", 8))
    at = broken.index(b"mdat") + 20
    broken[at : at + 200] = bytes(200)
    samples[5] = {"mp4": bytes(broken), "txt": b"hello world"}
    samples[7] = {"mp4": b"no clip", "txt": b"hello world"}
    config = video_stream(tmp_path, samples)
    config = {**config, "sources": {"clips": config["sources"]["clips"]}, "length": "count"}
    with (
        pytest.raises(
            DataError, match=r"^source clips: shard-00\d\.tar, sample \d .*clip 0 .*; mend it, or set on_bad"
        ),
        Loader(config) as loader,
    ):
        list(loader)
    found = set()
    for way in ("inline", "threads"):
        delivered = Delivered()
        with Loader({**config, **WAYS[way], "on_bad_sample": "skip"}) as loader:
            for batch in loader:
                delivered.add(batch)
            report = loader.report()
            found.add((stream_digest(loader.state_dict()), delivered.digest(loader.plan["length"])))
        assert report["bad_samples"] == {"clips": 1}
        assert report["broken_images"] == 1
        assert report["images"] == 11
    assert len(found) == 1
