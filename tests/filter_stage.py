"""A function stage that keeps one sample in a thousand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def one_in_a_thousand(fields: Mapping[str, Any], *, rng: object) -> NDArray[np.uint32] | None:
    """Return the sample's tokens where its `number` divides by 1,000, and nothing otherwise."""
    return None if fields["number"] % 1000 else np.array(fields["tokens"], np.uint32)
