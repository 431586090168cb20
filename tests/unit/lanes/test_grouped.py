"""`homogeneous`: rows of one group, and no group that waits for ever."""

from __future__ import annotations

import pytest
from lane_items import item, placed

from zephon.config import Pack
from zephon.errors import ConfigError
from zephon.lanes.best_fit import BestFit
from zephon.lanes.concat import Concat
from zephon.lanes.grouped import Grouped
from zephon.lanes.packers import make_operators, make_packer
from zephon.lanes.protocol import Packer
from zephon.lanes.spec import LaneSpec


def grouped(*, max_age: int = 100, pool: int = 2) -> Grouped:
    pack = Pack(pool=pool)
    return Grouped(lambda: BestFit(pack, 10), lambda item: item.source, max_age)


def push(packing: Packer, *documents: tuple[str, int, int]) -> None:
    for source, sample, length in documents:
        packing.push(item(sample, length, source=source))


def test_rows_hold_one_group_only() -> None:
    packing = grouped(pool=3)
    push(packing, ("web", 0, 4), ("code", 1, 6), ("web", 2, 6), ("code", 3, 4), ("web", 4, 1))
    row = packing.pop(last=False)
    assert row is not None
    assert {span.item.source for span in row.spans} == {"web"}
    assert placed(row) == [(0, 0, 4, 0), (2, 0, 6, 4)]
    assert packing.pop(last=False) is None


def test_the_group_with_the_oldest_document_is_asked_first() -> None:
    packing = grouped()
    push(packing, ("b", 0, 9), ("a", 1, 9), ("a", 2, 9), ("b", 3, 9))
    # Both pools are full; "b" has the older document, whatever its name.
    assert placed(packing.pop(last=False)) == [(0, 0, 9, 0)]
    # Now "a" has the older one.
    push(packing, ("b", 4, 9))
    assert placed(packing.pop(last=False)) == [(1, 0, 9, 0)]


def test_a_group_that_waited_max_age_rows_is_next() -> None:
    packing = grouped(max_age=2)
    push(packing, ("rare", 0, 3), *(("web", sample, 9) for sample in range(1, 6)))
    rows = [placed(packing.pop(last=False)) for _ in range(4)]
    assert rows == [[(1, 0, 9, 0)], [(2, 0, 9, 0)], [(0, 0, 3, 0)], [(3, 0, 9, 0)]]


def test_of_two_groups_that_waited_as_long_the_first_pushed_is_next() -> None:
    packing = grouped(max_age=1, pool=3)
    push(packing, ("z", 0, 3), ("y", 1, 3), *(("web", sample, 9) for sample in range(2, 8)))
    rows = [placed(packing.pop(last=False)) for _ in range(4)]
    # After one row of "web" every group is due; "z" came before "y", and both before the rest of "web".
    assert rows == [[(2, 0, 9, 0)], [(0, 0, 3, 0)], [(1, 0, 3, 0)], [(3, 0, 9, 0)]]


def test_at_the_end_groups_are_emptied_in_order_of_age() -> None:
    packing = grouped(pool=9)
    push(packing, ("b", 0, 4), ("a", 1, 4), ("b", 2, 4))
    assert [placed(packing.pop(last=True)) for _ in range(3)] == [[(0, 0, 4, 0), (2, 0, 4, 4)], [(1, 0, 4, 0)], None]


def test_ages_and_the_clock_are_state() -> None:
    documents = [("rare", 0, 3), *(("web", sample, 9) for sample in range(1, 9))]
    for stop in range(5):
        straight, stopped = grouped(max_age=3), grouped(max_age=3)
        push(straight, *documents)
        push(stopped, *documents)
        for _ in range(stop):
            straight.pop(last=False)
            stopped.pop(last=False)
        again = grouped(max_age=3)
        again.restore(stopped.state(), stopped.held())
        assert (again.state(), again.held()) == (straight.state(), straight.held())
        for _ in range(5):
            assert placed(again.pop(last=False)) == placed(straight.pop(last=False))


def test_an_edge_stays_with_its_group_through_a_restore() -> None:
    def concat() -> Grouped:
        return Grouped(lambda: Concat(Pack(), 5), lambda item: item.source, 100)

    packing = concat()
    push(packing, ("a/b", 0, 5), ("b", 1, 3))
    assert placed(packing.pop(last=False)) == [(0, 0, 5, 0)]
    again = concat()
    again.restore(packing.state(), packing.held())
    # Of "a/b" only the edge is left, of "b" a document that nobody has seen.
    assert placed(again.pop(last=True)) == [(1, 0, 3, 0)]
    assert again.pop(last=True) is None


def spec(**pack: object) -> LaneSpec:
    return LaneSpec(
        seed=0,
        lanes=1,
        capacity=10,
        sources=(),
        entries=(),
        by_samples=False,
        spread=1,
        max_empty=1,
        max_bad=None,
        pack=Pack(**pack),  # type: ignore[arg-type]
        operators=(),
        metadata={"web": ("size", "group"), "code": ("group",)},
    )


def test_groups_are_sources_mappings_or_metadata() -> None:
    by_source = make_packer(spec(homogeneous="source", pool=1))
    push(by_source, ("web", 0, 3), ("code", 1, 3))
    assert placed(by_source.pop(last=False)) == [(0, 0, 3, 0)]
    by_mapping = make_packer(spec(homogeneous={"text": ["web", "code"]}, pool=2))
    push(by_mapping, ("web", 0, 3), ("code", 1, 3))
    assert placed(by_mapping.pop(last=False)) == [(0, 0, 3, 0), (1, 0, 3, 3)]
    by_metadata = make_packer(spec(homogeneous="group", pool=2))
    for sample, (source, meta) in enumerate([("web", (5, 1)), ("code", (1,)), ("code", (5,))]):
        by_metadata.push(type(item(0, 1))(source, 0, sample, 0, 0, 3, meta))
    assert placed(by_metadata.pop(last=False)) == [(0, 0, 3, 0), (1, 0, 3, 3)]


def test_the_default_age_is_four_pools() -> None:
    packing = make_packer(spec(homogeneous="source", pool=2))
    push(packing, ("rare", 0, 3))
    for sample in range(1, 12):
        push(packing, ("web", sample, 9))
    rows = [placed(packing.pop(last=False)) for _ in range(9)]
    assert [row for row in rows if row == [(0, 0, 3, 0)]] == [rows[8]]


def test_an_operator_that_does_not_take_its_options_is_a_config_error() -> None:
    from msgspec.structs import replace

    from zephon.config import OperatorConfig

    wrong = replace(spec(), operators=(OperatorConfig(kind="shuffle", options={"size": 4}),))
    with pytest.raises(ConfigError, match=r"operators\[0\] \(shuffle\) doesn't take its options: .*size"):
        make_operators(wrong, 0)


def test_a_group_that_is_used_up_leaves_no_trace() -> None:
    packing = Grouped(lambda: Concat(Pack(), 4), lambda item: item.source, 100)
    push(packing, *[(f"group-{number}", number, 3) for number in range(20)])
    while packing.pop(last=True) is not None:
        pass
    assert packing.held() == ()
    assert packing.state() == {"rows": 20, "ages": ()}
