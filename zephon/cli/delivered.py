"""What trainers were handed, hashed by sequence: the check on the digests in the states."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from zephon.collate.batch import Batch


BY_ROW = ("tokens", "labels", "loss_mask", "position_ids")


class Delivered:
    """Collects row hashes under their sequences, in whatever order the ranks' batches come."""

    def __init__(self) -> None:
        self._hashes: dict[int, int] = {}
        self.repeated = 0

    def add(self, batch: Batch) -> None:
        """Add a micro-batch's rows: tokens, labels, loss mask and positions (which tell where documents start)."""
        tensors = [batch[name].cpu().numpy() for name in BY_ROW]
        for row, sequence in enumerate(batch.sequences):
            digest = xxhash.xxh3_64()
            for tensor in tensors:
                digest.update(tensor[row].data)
            self.repeated += sequence in self._hashes
            self._hashes[sequence] = digest.intdigest()

    def missing(self, start: int, stop: int) -> int:
        """Return how many of the sequences from `start` to before `stop` nobody was handed."""
        return sum(1 for sequence in range(start, stop) if sequence not in self._hashes)

    def digest(self, stop: int) -> str:
        """Return one hex string for the rows before `stop`, in the stream's order."""
        whole = blake2b(digest_size=16)
        for sequence in sorted(s for s in self._hashes if s < stop):
            whole.update(sequence.to_bytes(8, "little") + self._hashes[sequence].to_bytes(8, "little"))
        return whole.hexdigest()
