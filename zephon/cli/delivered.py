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
        """Add a micro-batch's rows: tokens, labels, loss mask, positions (where documents start) and images."""
        tensors = [batch[name].cpu().numpy() for name in BY_ROW]
        images = image_bytes(batch)
        for row, sequence in enumerate(batch.sequences):
            digest = xxhash.xxh3_64()
            for tensor in tensors:
                digest.update(tensor[row].data)
            for data in images.get(row, ()):
                digest.update(data)
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


def image_bytes(batch: Batch) -> dict[int, list[bytes]]:
    """Return by row the grid, place and pixels of each of its images, in their order."""
    found: dict[int, list[bytes]] = {}
    if "pixel_values" not in batch:
        return found
    pixels = batch["pixel_values"].cpu()
    grids, places = batch["image_grid_thw"].cpu(), batch["image_positions"].cpu()
    # Of a fixed size each frame is an entry; else each patch is.
    counts = grids[:, 0].tolist() if pixels.dim() == 4 else grids.prod(1).tolist()
    for grid, place, own in zip(grids, places.tolist(), pixels.split(counts) if counts else (), strict=True):
        row, *rest = place
        found.setdefault(row, []).append(grid.numpy().tobytes() + bytes(str(rest), "ascii") + own.numpy().tobytes())
    return found
