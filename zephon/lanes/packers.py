"""Makes a lane's operators and packer from its spec."""

from __future__ import annotations

from collections.abc import Callable

from zephon.errors import ConfigError, ZephonError
from zephon.item import Item
from zephon.lanes.budgets import BudgetedBestFit, amounts_of
from zephon.lanes.grouped import Grouped
from zephon.lanes.protocol import Operator, Packer
from zephon.lanes.spec import LaneSpec
from zephon.registry import OPERATORS, PACKERS, resolve


def make_packer(spec: LaneSpec) -> Packer:
    """Return the packer that `pack` names, one for each group where rows are homogeneous."""
    kind = resolve(PACKERS, spec.pack.kind, place="pack.kind")

    def make() -> Packer:
        if spec.pack.budgets:
            return BudgetedBestFit(spec.pack, spec.capacity, amounts_of(tuple(spec.pack.budgets), spec.metadata))
        packer: Packer = kind(spec.pack, spec.capacity)
        return packer

    if spec.pack.homogeneous == "none":
        return make()
    max_age = spec.pack.max_age if spec.pack.max_age is not None else 4 * spec.pack.pool
    return Grouped(make, group_function(spec), max_age)


def make_operators(spec: LaneSpec, lane: int) -> list[Operator]:
    """Return a lane's operators, first to last. Raises ConfigError where one doesn't take its options."""
    operators: list[Operator] = []
    for position, config in enumerate(spec.operators):
        kind = resolve(OPERATORS, config.kind, place=f"operators[{position}].kind")
        try:
            operators.append(kind(seed=spec.seed, lane=lane, position=position, **config.options))
        except ZephonError:
            raise
        except (TypeError, ValueError) as error:
            raise ConfigError(f"operators[{position}] ({config.kind}) doesn't take its options: {error}") from error
    return operators


def group_function(spec: LaneSpec) -> Callable[[Item], str]:
    """Return the function that names an item's group, as `pack.homogeneous` says."""
    rule = spec.pack.homogeneous
    if rule == "source":
        return lambda item: item.source
    if isinstance(rule, dict):
        groups = {source: group for group, sources in rule.items() for source in sources}
        return lambda item: groups[item.source]
    places = {name: names.index("group") for name, names in spec.metadata.items() if "group" in names}
    return lambda item: str(item.meta[places[item.source]])
