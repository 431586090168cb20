"""The compiled modules: built, current, and the same to the last bit as the Python that stands in for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from zephon import native
from zephon.collate import host_pixels
from zephon.collate.host import HostBatch
from zephon.collate.host_text import host_text
from zephon.engine import assemble
from zephon.native import compiled

NATIVE = Path(native.__file__).parent
SOURCES = sorted(NATIVE.glob("*.pyx"))
built = pytest.mark.skipif(os.environ.get("ZEPHON_NATIVE") == "0", reason="ZEPHON_NATIVE=0")


@built
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_each_module_is_built_from_the_source_that_is_here(source: Path) -> None:
    module = compiled(source.stem)
    assert module is not None, "not compiled: run make, which needs a C compiler"
    made = Path(module.__file__)
    assert made.stat().st_mtime >= source.stat().st_mtime, f"{made.name} is older than {source.name}: run make"


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_zephon_native_0_leaves_them_out(source: Path) -> None:
    code = f"from zephon.native import compiled; print(compiled({source.stem!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "ZEPHON_NATIVE": "0"}, capture_output=True, text=True
    )
    assert done.stdout == "None\n", done.stderr


def test_a_name_that_was_never_compiled_is_none() -> None:
    assert compiled("nothing") is None


SCALE, SHIFT = (np.array(values, np.float32) for values in ((1 / 57.3, 0.0171, 1 / 255), (-2.1, 0.33, -0.5)))


@built
def test_fixed_values_are_numpy_s(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    images = [rng.integers(0, 256, (frames, 36, 36, 3), dtype=np.uint8) for frames in (1, 3)]
    # One that lies in memory with gaps, as a view of a larger picture does.
    images.append(rng.integers(0, 256, (1, 72, 72, 3), dtype=np.uint8)[:, ::2, ::2])
    found = host_pixels.fixed_values(images, size=36, scale=SCALE, shift=SHIFT)
    monkeypatch.setattr(host_pixels, "kernels", None)
    assert np.array_equal(found, host_pixels.fixed_values(images, size=36, scale=SCALE, shift=SHIFT))


@built
@pytest.mark.parametrize(("patch", "merge", "depth"), [(14, 2, 2), (16, 1, 1), (4, 3, 2)])
def test_native_values_are_numpy_s(patch: int, merge: int, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    side = patch * merge
    shapes = [(1, side, 3 * side), (2 * depth, 2 * side, side), (depth, side, side)]
    images = [rng.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in shapes]
    options = {"patch": patch, "merge": merge, "depth": depth, "scale": SCALE, "shift": SHIFT}
    found = host_pixels.native_values(images, **options)
    monkeypatch.setattr(host_pixels, "kernels", None)
    assert np.array_equal(found, host_pixels.native_values(images, **options))


@built
@pytest.mark.parametrize("rows", [[], [[]], [[(0, 5), (5, 2)], [], [(3, 1)]]], ids=str)
def test_piece_tables_are_numpy_s(rows: list[list[tuple[int, int]]], monkeypatch: pytest.MonkeyPatch) -> None:
    layouts = [np.array(row, np.int32).tobytes() for row in rows]
    found = assemble.piece_table(layouts)
    assert found.tolist() == [[row, *piece] for row, pieces in enumerate(rows) for piece in pieces]
    monkeypatch.setattr(assemble, "native", None)
    assert np.array_equal(found, assemble.piece_table(layouts))


@built
@pytest.mark.parametrize(
    "pieces",
    [[(0, 0, 9)], [(0, 7, 2)], [(0, 2, 3), (0, 4, 2)], [(0, 3, 0)], [(0, -1, 2)], [(2, 0, 2)], [(1, 0, 2), (0, 0, 2)]],
    ids=str,
)
def test_pieces_that_no_row_can_have_are_refused(pieces: list[tuple[int, int, int]]) -> None:
    host = HostBatch(tokens=np.ones((2, 8), np.int32), pieces=np.array(pieces, np.int32), mask=None, sequences=(0, 1))
    with pytest.raises(ValueError, match="doesn't lie behind the one before and inside its row"):
        host_text(host, mask_boundary=True, align=1, reset=True)


@built
@pytest.mark.parametrize(("frames", "patch", "merge"), [(0, 8, 2), (1, 0, 2), (1, 8, 0)])
def test_images_without_frames_or_patches_are_refused(frames: int, patch: int, merge: int) -> None:
    levels, out = np.zeros((frames, 32, 32, 3), np.uint8), np.zeros((4, 3, 1, 64), np.float32)
    with pytest.raises(ValueError, match="no frames, or patches have no pixels"):
        host_pixels.kernels.fill_patches(levels, SCALE, SHIFT, out, patch=patch, merge=merge)
