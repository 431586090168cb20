"""Does a state belong to a plan? Field by field, with what may change later left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zephon.errors import StateError


def check_plan(saved: Mapping[str, Any], plan: Mapping[str, Any], consumed: int) -> None:
    """Raise StateError, naming each difference, where a plan isn't that of the state.

    Mixtures that take effect at sequence `consumed` or later may differ, and so may sources that only they use.
    """
    found = differences(_before(saved, consumed, plan), _before(plan, consumed, saved))
    if found:
        raise StateError(f"the state is of another plan: {'; '.join(found)}; restore these settings, or start anew")


def differences(saved: Any, plan: Any, place: str = "") -> list[str]:
    """Return each field in which two plans differ, with both values."""
    if isinstance(saved, Mapping) and isinstance(plan, Mapping):
        found = []
        for field in sorted({*saved, *plan}, key=str):
            inner = f"{place}.{field}" if place else str(field)
            found += differences(saved.get(field), plan.get(field), inner)
        return found
    if isinstance(saved, list | tuple) and isinstance(plan, list | tuple) and len(saved) == len(plan):
        return [
            line for i, pair in enumerate(zip(saved, plan, strict=True)) for line in differences(*pair, f"{place}[{i}]")
        ]
    equal = type(saved) is type(plan) and saved == plan
    return [] if equal else [f"{place or 'plan'} is {_short(saved)} in the state and {_short(plan)} here"]


def _before(plan: Mapping[str, Any], consumed: int, other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a plan that shaped the stream before `consumed`.

    A source that the other plan doesn't have counts only if a mixture in force before `consumed` names it.
    """
    mix = plan.get("mix")
    entries = mix.get("entries") if isinstance(mix, Mapping) else None
    sources, others = plan.get("sources"), other.get("sources")
    if not isinstance(mix, Mapping) or not isinstance(entries, list | tuple) or not isinstance(sources, Mapping):
        return dict(plan)
    past = [entry for entry in entries if _in_force(entry, consumed)]
    used = {name for entry in past for name in _weights(entry)}
    known = others if isinstance(others, Mapping) else {}
    kept = {name: source for name, source in sources.items() if name in used or name in known}
    return {**plan, "mix": {**mix, "entries": past}, "sources": kept}


def _in_force(entry: Any, consumed: int) -> bool:
    """Return whether a mixture shaped the stream before `consumed`; a damaged one counts, so that it is compared."""
    start = entry.get("from") if isinstance(entry, Mapping) else None
    return not isinstance(start, int) or start == 0 or start < consumed


def _weights(entry: Any) -> Mapping[str, Any]:
    weights = entry.get("weights") if isinstance(entry, Mapping) else None
    return weights if isinstance(weights, Mapping) else {}


def _short(value: Any) -> str:
    if value is None:
        return "unset"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
