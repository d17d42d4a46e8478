"""What distinguishes the slow nodes of a fleet from the others, by recorded facts, and since when they are slow. Pure;
docs/fleet.md, "Read the report"."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from helpers.judging.statistics import robust_sigma

# A text separates a node if at most _RARE of the healthy nodes have the same text, and at least _USUAL of them have one
# other text. One that is different on every node, such as a serial number, separates nothing.
_RARE, _USUAL = 0.05, 0.5
# A number separates a node if it is _FAR standard deviations of the healthy nodes from their median, and at least
# _LEAST_SHARE of the median.
_FAR, _LEAST_SHARE = 4.0, 0.02
# A node counts as slow in an earlier fleet if it was at least this share of tonight's drop slower than the others.
_AS_SLOW = 0.5


K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Difference:
    """A recorded fact of a slow node that healthy nodes do not have."""

    fact: str
    # Its value on the slow node.
    here: str
    # Its value on most healthy nodes.
    usual: str
    # How many healthy nodes have about this value, and of how many.
    usual_nodes: int
    healthy_nodes: int


@dataclass(frozen=True)
class SharedDifference:
    """A difference that several slow nodes have in common."""

    difference: Difference
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Since:
    """When a node became slow, by the fleets in which it was measured."""

    # The first fleet of the unbroken row in which it was slow.
    first: str
    # The length of that row, with the newest fleet.
    fleets: int
    # The fleet before that row, and the node's shift in it as a fraction; empty and None if it was in none.
    before: str = ""
    before_shift: float | None = None


def differences(
    texts: Mapping[K, Mapping[str, str]], numbers: Mapping[K, Mapping[str, float]], slow: Collection[K]
) -> dict[K, tuple[Difference, ...]]:
    """For each slow node, or card, the facts that separate it from the healthy ones.

    ``texts`` and ``numbers`` have the facts of each, by name.
    """
    healthy = [node for node in texts if node not in slow]
    names = list(dict.fromkeys(name for facts in texts.values() for name in facts))
    values = {name: Counter(texts[node].get(name, "") for node in healthy) for name in names}
    found: dict[K, tuple[Difference, ...]] = {}
    for node in slow:
        mine = [_text_differs(name, texts.get(node, {}).get(name, ""), values[name]) for name in names]
        mine += [
            _number_differs(name, value, [numbers[each][name] for each in healthy if name in numbers.get(each, {})])
            for name, value in numbers.get(node, {}).items()
        ]
        found[node] = tuple(each for each in mine if each is not None)
    return found


def shared(found: Mapping[str, Iterable[Difference]]) -> tuple[SharedDifference, ...]:
    """The differences that two or more slow nodes have, the most common first."""
    nodes: dict[Difference, list[str]] = {}
    for node, mine in found.items():
        for each in mine:
            nodes.setdefault(each, []).append(node)
    several = [SharedDifference(each, tuple(with_it)) for each, with_it in nodes.items() if len(with_it) > 1]
    return tuple(sorted(several, key=lambda each: -len(each.nodes)))


def since(shifts: Sequence[tuple[str, float]]) -> Since:
    """Since when a node is slow. ``shifts`` has the fleets in which it was measured, oldest first, and how far it was
    from the others in each (a fraction). It is slow in the last one."""
    enough = _AS_SLOW * shifts[-1][1]
    at = len(shifts) - 1
    while at and shifts[at - 1][1] <= enough:
        at -= 1
    before = shifts[at - 1] if at else ("", None)
    return Since(shifts[at][0], len(shifts) - at, *before)


def _text_differs(name: str, here: str, others: Counter[str]) -> Difference | None:
    total = others.total()
    if not total:
        return None
    (usual, count), *_ = others.most_common(1)
    if here == usual or others[here] > _RARE * total or count < _USUAL * total:
        return None
    return Difference(name, here or "not recorded", usual or "not recorded", count, total)


def _number_differs(name: str, here: float, others: Sequence[float]) -> Difference | None:
    if not others:
        return None
    middle = statistics.median(others)
    apart = abs(here - middle)
    if apart <= max(_FAR * robust_sigma(others), _LEAST_SHARE * abs(middle)):
        return None
    near = sum(abs(each - middle) < apart / 2 for each in others)
    return Difference(name, f"{here:.4g}", f"{middle:.4g}", near, len(others))
