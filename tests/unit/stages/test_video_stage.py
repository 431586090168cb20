"""The video stage: clips before their caption, frames by a rule, one shape in both passes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from clips import ENCODERS, clip, frame
from pictures import FIXED, NATIVE, images_of
from stage_runs import check, encode, masks_of, tokens_of
from xxhash import xxh3_64_intdigest

from zephon.errors import ConfigError
from zephon.formats.sample import Sample
from zephon.images.clip_header import ClipInfo, read_clip_header
from zephon.images.rules import read_rule
from zephon.page import FRAMES, GRID_H, GRID_T, GRID_W, HASH, HEIGHT, NUMBER, PATCHES, PLACE, TOKENS, WIDTH, Wanted
from zephon.random import SampleRandom
from zephon.stages import fitted_config, stage_plan
from zephon.stages.documents import Documents
from zephon.stages.fields import BadSampleError
from zephon.stages.video import clip_geometry, num_frames
from zephon.tokenizer import LoadedTokenizer

PAD, START, END, EOS = 6, 3, 4, 0
DEEP = {**NATIVE, "temporal_patch": 3}


def stage_of(tokenizer: LoadedTokenizer | None, *, capacity: int = 512, **settings: Any) -> Any:
    raw = {"kind": "video", "images": images_of(), **settings}
    return fitted_config(raw, capacity=capacity, long="split", place="s").build(tokenizer, place="s")


def run(tokenizer: LoadedTokenizer, *fields: dict[str, Any], **settings: Any) -> Documents:
    samples = [Sample(str(number), each) for number, each in enumerate(fields)]
    made: Documents = stage_of(tokenizer, **settings).documents(samples, lambda _: SampleRandom(0))
    check(made, len(samples))
    return made


def described(made: Documents) -> tuple[Any, ...]:
    assert made.attachments is not None
    return tokens_of(made), masks_of(made), made.attachments[:, 1:].tolist()


@pytest.mark.parametrize("resize", [NATIVE, FIXED, DEEP], ids=["native", "fixed", "deep"])
@pytest.mark.parametrize("kind", ENCODERS)
def test_a_caption_follows_its_clip(tokenizer: LoadedTokenizer, kind: str, resize: dict[str, Any]) -> None:
    data = clip(kind, 9)
    made = run(tokenizer, {kind: data, "txt": b"hello world"}, images=images_of(resize), frames=4)
    plan = read_rule(resize, place="r").plan(read_clip_header(data, max_pixels=1 << 20))
    frames, times = {"native": (4, 2), "fixed": (4, 4)}[resize["kind"]] if resize is not DEEP else (3, 1)
    clip_tokens = [START, *[PAD] * (times * plan.tokens), END]
    text = [*encode(tokenizer, "hello world"), EOS]
    assert tokens_of(made) == [clip_tokens + text]
    assert masks_of(made) == [[0] * len(clip_tokens) + [1] * len(text)]
    assert made.attachments is not None
    (row,) = made.attachments.tolist()
    assert [row[c] for c in (PLACE, TOKENS, NUMBER, FRAMES)] == [1, times * plan.tokens, 0, frames]
    assert [row[c] for c in (HEIGHT, WIDTH)] == [plan.height, plan.width]
    assert [row[c] for c in (GRID_T, GRID_H, GRID_W)] == [times, plan.grid_h, plan.grid_w]
    assert row[PATCHES] == times * plan.patches
    assert row[HASH] % 2**64 == xxh3_64_intdigest(data)
    assert made.meta is not None
    assert made.meta.tolist()[0][:2] == [1, times * plan.patches]


@pytest.mark.parametrize("resize", [NATIVE, FIXED, DEEP], ids=["native", "fixed", "deep"])
@pytest.mark.parametrize("frames", [1, 2, 5, 8])
def test_both_passes_agree_on_the_shape(tokenizer: LoadedTokenizer, resize: dict[str, Any], frames: int) -> None:
    sample = Sample("0", {"mp4": [clip("mp4", 7), clip("mp4", 2, turn=90)], "txt": "hello"})
    stage = stage_of(tokenizer, images=images_of(resize), frames=frames)
    for row in stage.documents([sample], lambda _: SampleRandom(0)).attachments.tolist():
        wanted = Wanted(0, row[NUMBER], row[FRAMES], row[HEIGHT], row[WIDTH])
        pixels = stage.materialise(sample, wanted, SampleRandom(0))
        assert pixels.dtype == np.uint8
        assert pixels.shape == (row[FRAMES], row[HEIGHT], row[WIDTH], 3)
        depth = resize.get("temporal_patch", 2) if resize["kind"] == "native" else 1
        assert row[GRID_T] == max(1, row[FRAMES] // depth)
        assert row[FRAMES] == 1 or row[FRAMES] % depth == 0
        assert row[TOKENS] * resize.get("merge", 1) ** 2 == row[PATCHES] == row[GRID_T] * row[GRID_H] * row[GRID_W]


def test_frames_are_those_of_the_whole_clip(tokenizer: LoadedTokenizer) -> None:
    stage = stage_of(tokenizer, images=images_of(FIXED))
    pixels = stage.materialise(Sample("0", {"mp4": clip("mp4", 12)}), Wanted(0, 0, 4, 32, 32), SampleRandom(0))
    for own, number in zip(pixels, (0, 3, 6, 9), strict=True):
        assert abs(int(own[-1, -1, 0]) - int(frame(number)[-1, -1, 0])) < 6


def info(frames: int, seconds: Fraction | None) -> ClipInfo:
    return ClipInfo(format="mp4", width=32, height=24, frames=frames, seconds=seconds)


def test_the_number_of_frames_is_the_least_of_three() -> None:
    ten = Fraction(10)
    assert num_frames(info(300, ten), most=16, fps=None) == 16
    assert num_frames(info(5, ten), most=16, fps=None) == 5
    assert num_frames(info(300, ten), most=16, fps=1.0) == 10
    assert num_frames(info(300, ten), most=16, fps=2.0) == 16
    assert num_frames(info(300, ten), most=16, fps=0.05) == 1
    # 0.1 is a tenth, which no float is.
    assert num_frames(info(300, Fraction(70)), most=16, fps=0.1) == 7
    assert num_frames(info(300, None), most=16, fps=None) == 16
    rule = read_rule(DEEP, place="r")
    assert [clip_geometry(rule, info(9, None), n)[1] for n in (1, 2, 3, 5, 6, 8)] == [1, 1, 3, 3, 6, 6]


def test_a_batch_is_its_samples_one_by_one(tokenizer: LoadedTokenizer) -> None:
    fields = [{kind: clip(kind, 3 + n), "txt": f"hello {n}".encode()} for n, kind in enumerate(ENCODERS)]
    fields.insert(1, {"mp4": b"no clip", "txt": b"hello"})
    together = run(tokenizer, *fields)
    apart = [run(tokenizer, each) for each in fields]
    assert together.counts.tolist() == [made.counts[0] for made in apart] == [1, 0, 1, 1]
    parts = [described(made) for made in apart]
    assert described(together) == tuple([each for part in parts for each in part[i]] for i in range(3))
    assert [number for number, _ in together.bad] == [1]


BAD = [
    ({"mp4": b"hello hello", "txt": b"x"}, "clip 0 starts with b'hello he', and is no MP4"),
    ({"mp4": clip("mp4")[:900], "txt": b"x"}, "was cut off"),
    ({"txt": b"x"}, "no member 'mp4' (has: 'txt')"),
    ({"mp4": clip("mp4", 1)}, "no member 'txt'"),
    ({"mp4": 5, "txt": b"x"}, "not a clip's bytes"),
    ({"mp4": clip("mp4", 16, width=256, height=256), "txt": b"x"}, "too many for max_tokens=60"),
    ({"mp4": clip("mp4", 1, width=600, height=200), "txt": b"x"}, "more than max_pixels=100,000"),
]


@pytest.mark.parametrize(("fields", "fault"), BAD, ids=[fault for _, fault in BAD])
def test_a_bad_sample_is_told_and_the_others_go_on(
    tokenizer: LoadedTokenizer, fields: dict[str, Any], fault: str
) -> None:
    good = {"gif": clip("gif", 2), "txt": b"hello"}
    made = run(tokenizer, good, fields, good, capacity=60, images=images_of(max_pixels=100_000))
    assert made.counts.tolist() == [1, 0, 1]
    ((number, message),) = made.bad
    assert number == 1
    assert fault in message
    assert "\n" not in message


def test_fps_needs_a_clip_that_says_how_long_it_plays(tokenizer: LoadedTokenizer) -> None:
    data = clip("webm", 4)
    at = data.index(b"\x44\x89\x88")
    endless = {"webm": data[:at] + b"\x44\x89\x88" + bytes(8) + data[at + 11 :], "txt": b"hello"}
    assert run(tokenizer, endless).bad == ()
    assert "doesn't say how long it plays, which fps needs" in run(tokenizer, endless, fps=2).bad[0][1]


def test_damage_behind_the_header_shows_when_frames_are_asked_for(tokenizer: LoadedTokenizer) -> None:
    data = bytearray(clip("mp4", 8))
    at = data.index(b"mdat") + 20
    data[at : at + 200] = bytes(200)
    sample = Sample("0", {"mp4": bytes(data), "txt": "hello"})
    stage = stage_of(tokenizer)
    (row,) = stage.documents([sample], lambda _: SampleRandom(0)).attachments.tolist()
    with pytest.raises(BadSampleError, match=r"^clip 0 "):
        stage.materialise(sample, Wanted(0, 0, row[FRAMES], row[HEIGHT], row[WIDTH]), SampleRandom(0))


FAULTS = [
    ({"images": images_of(placeholder="<nothing>")}, "placeholder"),
    ({"images": images_of(augment={"function": "a:b"})}, r"s\.images\.augment is for images, not for clips; leave it"),
    ({"images": images_of(check="pixels")}, r"s\.images\.check is for images"),
    ({"images": images_of(decoder="auto")}, r"s\.images\.decoder is for images"),
    ({"frames": 0}, r"Expected `int` >= 1 - at `\$\.frames`"),
    ({"fps": 0}, r"> 0.* - at `\$\.fps`"),
    ({"video": []}, r"length >= 1 - at `\$\.video`"),
]


@pytest.mark.parametrize(("settings", "fault"), FAULTS, ids=[fault for _, fault in FAULTS])
def test_settings_that_cannot_work_are_refused(
    tokenizer: LoadedTokenizer, settings: dict[str, Any], fault: str
) -> None:
    with pytest.raises(ConfigError, match=fault):
        stage_of(tokenizer, **settings)


def test_without_pyav_the_remedy_is_told(tokenizer: LoadedTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zephon.images.clips.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"^s needs av \(PyAV\) to decode clips; pip install av$"):
        stage_of(tokenizer)


def test_the_plan_is_all_that_fixes_documents_and_pixels() -> None:
    raw = {"kind": "video", "images": images_of(), "frames": 8, "fps": 2}
    config = fitted_config(raw, capacity=64, long="drop", place="s")
    assert config.fields() == (("mp4", "webm", "mkv", "mov", "gif"), "txt")
    assert config.metadata() == ("images", "patches", "cost")
    plan = stage_plan(config, None) if not config.needs() else config.plan()
    assert (plan["kind"], plan["frames"], plan["fps"], plan["max_tokens"], plan["long"]) == (
        "video",
        8,
        2.0,
        64,
        "drop",
    )
    assert "decoder" not in plan["images"]
    assert config.needs() == ("path", "eos")
