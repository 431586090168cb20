"""Short hashes of a micro-batch's rows, for records of what was delivered."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any


def row_hashes(batch: Any) -> list[str]:
    """Return a short hash of each row's tokens, labels and mask."""
    arrays = [batch[name].numpy(force=True) for name in ("tokens", "labels", "loss_mask", "position_ids")]
    return [blake2b(b"".join(a[i].tobytes() for a in arrays), digest_size=6).hexdigest() for i in range(len(arrays[0]))]
