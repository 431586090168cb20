"""Augmentation keeps shapes, and repeats itself for the same generator."""

from __future__ import annotations

import numpy as np
from odd_images import colours

from zephon.images.augment import crop, flip
from zephon.random import SampleRandom


def test_flip_mirrors_half_of_the_images_and_keeps_the_rest() -> None:
    pixels = colours()
    results = [flip(pixels, SampleRandom(key)) for key in range(400)]
    mirrored = [np.array_equal(result, pixels[:, ::-1]) for result in results]
    assert all(mirror or np.array_equal(result, pixels) for mirror, result in zip(mirrored, results, strict=True))
    assert 150 < sum(mirrored) < 250
    assert np.array_equal(flip(pixels, SampleRandom(1), chance=0.0), pixels)


def test_crop_shows_a_part_at_the_same_shape() -> None:
    pixels = colours(60, 90)
    results = [crop(pixels, SampleRandom(key), least=0.3) for key in range(50)]
    assert {result.shape for result in results} == {(60, 90, 3)}
    # The red channel grows from left to right over the whole width: a part spans less of it.
    spans = [int(result[0, -1, 0]) - int(result[0, 0, 0]) for result in results]
    assert min(spans) < 130
    assert max(spans) > 180
    assert all(np.array_equal(result, crop(pixels, SampleRandom(key), least=0.3)) for key, result in enumerate(results))
    assert np.array_equal(crop(pixels, SampleRandom(7), least=1.0), pixels)
