"""Sound as tokens: the function of the docs gives the same stream everywhere, and says what is no sound."""

from __future__ import annotations

import io
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import write_tars
from streams import take

from zephon import DataError, Loader, stream_digest

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def sound(number: int, *, channels: int = 2, width: int = 2) -> bytes:
    """Return a WAV whose first channel rises from silence, a level a sample."""
    left = np.arange(20 + number, dtype=np.int16) << 8
    samples = np.stack([left, *[np.zeros_like(left)] * (channels - 1)], axis=1)
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(width)
        out.setframerate(8000)
        out.writeframes(samples.astype("<i2").tobytes())
    return buffer.getvalue()


def sound_stream(folder: Path, samples: list[dict[str, bytes]], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    text = PAGE.read_text().partition("<!-- file: my_audio.py -->\n```python\n")[2].partition("```")[0]
    (folder / "my_audio.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    stage = {"kind": "function", "function": "my_audio:levels", "columns": ["wav"], "options": {"first": 1000}}
    return {
        "lanes": 2,
        "sequence_length": 32,
        "device": "cpu",
        "index_dir": str(folder / "index"),
        "sources": {"sounds": {"path": write_tars(folder / "sounds", samples), "stage": stage, "block_samples": 2}},
    }


def test_sound_becomes_tokens_and_a_resume_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = sound_stream(tmp_path, [{"wav": sound(n)} for n in range(12)], monkeypatch)
    digests = set()
    for kind in ("inline", "threads"):
        with Loader({**config, "backend": {"kind": kind}}) as loader:
            take(loader, 5)
            state = loader.state_dict()
            tokens = np.concatenate([batch["tokens"].numpy().ravel() for batch in take(loader, 5)])
            digests.add(stream_digest(loader.state_dict()))
        with Loader(config) as loader:
            loader.load_state_dict(state)
            take(loader, 5)
            digests.add(stream_digest(loader.state_dict()))
    assert len(digests) == 1
    assert set(tokens[tokens > 0].tolist()) <= {*range(1128, 1160), 1256}
    starts = np.flatnonzero(tokens == 1128)
    assert (tokens[starts[:-1] + 9] == 1137).all()


def test_what_is_no_sound_is_a_bad_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = sound_stream(tmp_path, [{"wav": sound(n, width=1)} for n in range(4)], monkeypatch)
    with (
        Loader(config) as loader,
        pytest.raises(DataError, match=r"my_audio:levels raised ValueError: has 8 bits a sample, not 16; mend it"),
    ):
        take(loader, 1)
