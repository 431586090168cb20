"""A function stage that takes its time."""

from __future__ import annotations

import time
from typing import Any

from zephon.stages.document import Document


def documents(fields: dict[str, Any], *, rng: object) -> list[Document]:
    """Sleep, and return nothing."""
    time.sleep(0.3)
    return []
