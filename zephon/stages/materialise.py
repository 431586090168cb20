"""The second stateless pass: an order for attachments of a planned row becomes their pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from zephon.errors import DataError
from zephon.formats.sample import Sample
from zephon.page import Order, Page, Wanted, page_of_pixels
from zephon.random import SampleRandom
from zephon.stages.fields import BadSampleError
from zephon.stages.stage import Stage

RandomOf = Callable[[Wanted], SampleRandom]


class AttachingStage(Stage, Protocol):
    """A stage whose documents have attachments: what is decoded only once a row is planned."""

    def materialise(self, sample: Sample, wanted: Wanted, rng: SampleRandom) -> NDArray[np.uint8]:
        """Return one attachment of a sample, uint8 [frames, height, width, 3], by its number.

        Depends on nothing but the sample, the stage's settings and the generator. Raises BadSampleError where its
        bytes can't be decoded.
        """
        ...


def materialise(
    stage: AttachingStage, order: Order, samples: Sequence[Sample], random: RandomOf, *, block_hash: int
) -> Page:
    """Return the page of what an order wants; what can't be decoded is zeros and counted in `bad`."""
    places = {number: place for place, number in enumerate(order.samples)}
    pixels: list[NDArray[np.uint8]] = []
    bad: list[tuple[int, str]] = []
    for number, wanted in enumerate(order.wanted):
        shape = (wanted.frames, wanted.height, wanted.width, 3)
        try:
            made = stage.materialise(samples[places[wanted.sample]], wanted, random(wanted))
        except BadSampleError as error:
            bad.append((number, str(error)))
            made = np.zeros(shape, np.uint8)
        if made.shape != shape or made.dtype != np.uint8:
            raise DataError(
                f"sources.{order.source}.stage gave {made.dtype} of shape {made.shape} for an attachment of "
                f"shape {shape}; correct the stage"
            )
        pixels.append(made)
    return page_of_pixels(tuple(pixels), bad=tuple(bad), block_hash=block_hash)
