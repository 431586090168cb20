"""How much to read at a time and ahead: numbers that follow from memory and workers, and never change the order."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

FIRST_SAMPLES = 4
TOKEN_BYTES = 4
# With fewer lanes x sources than this for each worker, a block is ordered as soon as it is next.
EAGER_STREAMS = 8


class Appetite(msgspec.Struct, frozen=True, kw_only=True):
    """Samples and bytes a page, samples of a first page, and blocks opened ahead per lane and source.

    `samples` are by source, from the mean that the index says; what a stage makes of them may take more, and then
    `page_bytes` is what counts.

    `eager`: blocks ahead are ordered as soon as they are opened, not only when one before them is nearly used up.
    """

    samples: dict[str, int]
    page_bytes: int
    first_samples: int
    ahead: int
    eager: bool

    def page_samples(self, source: str) -> int:
        """Return how many samples a page of a source holds at most."""
        return self.samples[source]


def appetite(
    *, num_lanes: int, spread: int, workers: int, mean_tokens: Mapping[str, int], pages_bytes: int
) -> Appetite:
    """Return what to read for a rank with `num_lanes` lanes, so that open pages take about `pages_bytes`.

    Few lanes read further ahead, since one lane's blocks are all that keeps workers busy; many lanes read
    smaller pages, since each keeps `spread` blocks of each source open.
    """
    streams = num_lanes * len(mean_tokens)
    ahead = max(1, -(-2 * workers // streams))
    # Nearly all of `spread` pages a stream wait to be taken: see PageFeed.reserve.
    page_bytes = pages_bytes // (streams * spread)
    samples = {name: max(1, page_bytes // (TOKEN_BYTES * mean)) for name, mean in mean_tokens.items()}
    return Appetite(
        samples=samples,
        page_bytes=page_bytes,
        first_samples=FIRST_SAMPLES,
        ahead=ahead,
        eager=streams <= EAGER_STREAMS * workers,
    )
