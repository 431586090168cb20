"""A feed whose pages come from a plan's own documents: lanes with tokens, without files, stages or a loader."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
from oracle_plan import Doc, Plan
from recorded import spec_of

from zephon.engine.appetite import Appetite
from zephon.engine.feed import PageFeed
from zephon.lanes.spec import LaneSpec
from zephon.page import Location, Order, Page


class PlanPages:
    """A backend that answers orders with a plan's documents; sample n of a block is bad where n % bad == bad - 1."""

    def __init__(self, plan: Plan, *, bad: int = 0) -> None:
        self._plan, self._bad = plan, bad
        self._orders: dict[int, Order] = {}
        self._tickets = 0

    def submit(self, order: Order) -> int:
        self._tickets += 1
        self._orders[self._tickets] = order
        return self._tickets

    def take(self, ticket: int) -> Page:
        order = self._orders.pop(ticket)
        block = self._plan.sources[order.source].blocks[order.block]
        bad = tuple((place, "torn") for place, n in enumerate(order.samples) if self._bad and (n + 1) % self._bad == 0)
        torn = {place for place, _ in bad}
        found: list[tuple[Doc, ...]] = [() if place in torn else block[n] for place, n in enumerate(order.samples)]
        docs = [doc for sample in found for doc in sample]
        masked = any(doc.mask is not None for doc in docs)
        tokens = [token for doc in docs for token in doc.tokens]
        mask = [bit for doc in docs for bit in (doc.mask or (1,) * len(doc.tokens))]
        return Page(
            np.array(tokens, np.uint32),
            np.cumsum([0, *(len(doc.tokens) for doc in docs)], dtype=np.int64),
            np.array([len(sample) for sample in found], np.int32),
            np.array(mask, np.uint8) if masked else None,
            None,
            bad,
            7 + order.block,
        )

    def drop(self, ticket: int) -> None:
        self._orders.pop(ticket, None)

    def close(self) -> None:
        self._orders.clear()

    @property
    def outstanding(self) -> int:
        return len(self._orders)


class Nowhere:
    """An index whose blocks need no place."""

    def location(self, block: int) -> Location:
        return Location("plan", "tar", 0, 0, -1, 0, 0)


def lane_spec_of(plan: Plan) -> LaneSpec:
    """Return the spec of a plan without groups, for which lanes may be compiled."""
    spec = spec_of(replace(plan, homogeneous="none", shuffles=()))
    return msgspec.structs.replace(spec, metadata=dict.fromkeys(plan.sources, ()))


def feed_of_plan(plan: Plan, spec: LaneSpec, *, page: int, ahead: int, limit_bytes: int, bad: int) -> PageFeed:
    """Return a feed of a plan's documents in pages of at most `page` samples, of which `limit_bytes` stay in memory."""
    samples = dict.fromkeys(plan.sources, page)
    sizes = Appetite(samples=samples, page_bytes=1 << 40, first_samples=1, ahead=ahead, eager=False)
    return PageFeed(
        spec,
        dict.fromkeys(plan.sources, Nowhere()),  # type: ignore[arg-type]
        PlanPages(plan, bad=bad),
        appetite=sizes,
        skip_bad=True,
        limit_bytes=limit_bytes,
    )
