"""A function stage whose documents depend on the sample's key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zephon import SampleRandom


def keyed(fields: Mapping[str, Any], *, rng: SampleRandom) -> NDArray[np.uint32]:
    """Return the key's characters as tokens."""
    return np.array([1 + ord(character) for character in fields["__key__"]], np.uint32)
