"""How many examples a property test tries: few by default, many with ZEPHON_PROFILE=deep."""

from __future__ import annotations

import os

DEEP = os.environ.get("ZEPHON_PROFILE") == "deep"


def examples(number: int) -> int:
    """Return the number of examples for the profile in force."""
    return number * 20 if DEEP else number
