"""Which nodes of a fleet are slow beyond chance. Pure; docs/multi-node.md, "How a node is judged".

Every node measured the same cases. In each case a node is compared with the median of all nodes, and its shift is the
mean over its cases. The median distance of the shifts from their median says how far healthy nodes are apart. Holm's
procedure over all nodes limits the probability that any healthy node is called slow.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helpers.judging.statistics import SIGMA_PER_MAD
from helpers.trainers.contract.errors import SuiteError

# Node → case → log rates of its runs.
Rates = Mapping[str, Mapping[str, Sequence[float]]]


# The probability that any node of a healthy fleet is called slow.
ERROR_RATE = 0.05
# The smallest drop that counts, as a fraction: the tolerance of recorded figures.
TOLERANCE = 0.005
# Fewer nodes do not show how far healthy ones are apart.
LEAST_NODES = 8
# Healthy nodes vary as Student's t with so many degrees of freedom: normal, with tails.
_FREEDOM = 5.0
# The spread of few nodes is known badly: there are no more degrees of freedom than this share of the nodes.
_FREEDOM_PER_NODE = 0.25
# No two nodes agree better than this (log rate): the smallest effect of a night (helpers.judging.case.noise).
_LEAST_SCALE = 0.0007


@dataclass(frozen=True)
class NodeVerdict:
    """One node compared with the others."""

    node: str
    slow: bool
    # All its cases against the others, as a fraction: -0.02 is 2% slower.
    shift: float
    # The probability that any healthy node of the fleet is as slow (Holm); 1 where nothing is judged.
    chance: float
    cases: int
    runs: int


@dataclass(frozen=True)
class FleetVerdict:
    """The verdict on all nodes that measured something, the slowest first."""

    nodes: tuple[NodeVerdict, ...]
    # By how much healthy nodes differ (standard deviation as a fraction); None with too few nodes to judge any.
    spread: float | None

    @property
    def slow(self) -> tuple[NodeVerdict, ...]:
        return tuple(each for each in self.nodes if each.slow)


def judge_fleet(rates: Rates) -> FleetVerdict:
    """The verdict on the nodes; one may lack cases. Raises SuiteError for a rate that is not finite."""
    shifts = _shifts(rates)
    judged = len(shifts) >= LEAST_NODES
    chances, scale = _chances(shifts) if judged else (dict.fromkeys(shifts, 1.0), None)
    nodes = [
        NodeVerdict(
            node=node,
            slow=judged and chances[node] <= ERROR_RATE and math.expm1(shift) <= -TOLERANCE,
            shift=math.expm1(shift),
            chance=chances[node],
            cases=sum(bool(runs) for runs in rates[node].values()),
            runs=sum(map(len, rates[node].values())),
        )
        for node, shift in shifts.items()
    ]
    return FleetVerdict(tuple(sorted(nodes, key=lambda each: (each.shift, each.node))), scale)


def _shifts(rates: Rates) -> dict[str, float]:
    """How far each node is from the others, as a log rate: the mean over its cases that another node has."""
    centres: dict[str, dict[str, float]] = {}
    for node, cases in rates.items():
        for case, runs in cases.items():
            if not all(map(math.isfinite, runs)):
                raise SuiteError(f"fleet: {case} on {node}", got=list(runs), expected="finite log rates")
            if runs:
                centres.setdefault(case, {})[node] = statistics.median(runs)
    apart: dict[str, list[float]] = {}
    for by_node in centres.values():
        middle = statistics.median(by_node.values())
        for node, centre in by_node.items():
            apart.setdefault(node, []).append(centre - middle)
    return {node: statistics.fmean(found) for node, found in apart.items()}


def _chances(shifts: Mapping[str, float]) -> tuple[dict[str, float], float]:
    """Holm's adjusted p-value of each node, and the standard deviation of healthy nodes."""
    # Not imported at the top: listing the commands takes less time than loading it.
    from scipy.special import stdtr, stdtrit

    middle = statistics.median(shifts.values())
    freedom = min(_FREEDOM, _FREEDOM_PER_NODE * (len(shifts) - 1))
    half = statistics.median(abs(shift - middle) for shift in shifts.values())
    # Half of all values of the distribution lie so far from its middle, in units of its scale.
    scale = max(half / float(stdtrit(freedom, 0.75)), _LEAST_SCALE)
    p_values = {node: float(stdtr(freedom, (shift - middle) / scale)) for node, shift in shifts.items()}
    chances, largest = {}, 0.0
    for rank, node in enumerate(sorted(p_values, key=lambda node: p_values[node])):
        # No node is less likely to be healthy than one with a smaller p-value.
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[node]))
        chances[node] = largest
    return chances, max(SIGMA_PER_MAD * half, _LEAST_SCALE)
