"""Nights of a pool of equal nodes: each is held against its own node, and how far the nodes are apart is learned."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from helpers.judging.evidence import Night, Past
from helpers.judging.noise import Noise, learn

# Two machines with cards of one model are 8% apart on average: what is expected of nodes that nobody has measured,
# worth one of them (docs/verdicts.md, "What is known about the noise").
UNKNOWN_SPREAD, _PSEUDO_NODES = 0.08, 1.0
# Nodes do not agree to 0.01%; a spread of none would make the first new node a sensation.
_LEAST_SPREAD = 1e-4


def learn_nights(nights: Sequence[Night], past: Past, recorded: Sequence[float]) -> Noise:
    """Noise of the accepted ``nights`` of a case and its ``recorded`` entry's log rates, of one night or run at least.

    In a pool a night tells how its own node varies. The next one may be of a node that stands elsewhere, so the
    spread between nodes belongs to ``tau``, with how well the few that were seen tell it.
    """
    if not past.pool:
        return learn([night.log_rates for night in nights], past.siblings, recorded)
    nodes = [night.node for night in nights]
    firsts = levelled([night.log_rates[0] for night in nights], nodes)
    shifts = [after - night.log_rates[0] for after, night in zip(firsts, nights, strict=True)]
    moved = [tuple(rate + shift for rate in night.log_rates) for night, shift in zip(nights, shifts, strict=True)]
    noise = learn(moved, past.siblings, recorded)
    levels = list(_levels([night.log_rates[0] for night in nights], nodes).values())
    spread = _spread(levels)
    # The entry's own node counts where there is no other.
    tau = math.sqrt(noise.tau**2 + spread**2 * (1 + 1 / max(1, len(levels))))
    return replace(noise, tau=tau, nodes=max(1, len(levels)), node_spread=spread)


def levelled(rates: Sequence[float], nodes: Sequence[str]) -> list[float]:
    """The rates as if all nodes stood where the middle one does."""
    levels = _levels(rates, nodes)
    if len(levels) < 2:
        return list(rates)
    middle = statistics.median(levels.values())
    return [rate - levels[node] + middle for rate, node in zip(rates, nodes, strict=True)]


def _levels(rates: Sequence[float], nodes: Sequence[str]) -> dict[str, float]:
    by_node: dict[str, list[float]] = {}
    for rate, node in zip(rates, nodes, strict=True):
        by_node.setdefault(node, []).append(rate)
    return {node: statistics.median(mine) for node, mine in by_node.items()}


def _spread(levels: Sequence[float]) -> float:
    """Standard deviation between nodes, from those seen and what is expected of nodes that were not."""
    own = len(levels) - 1
    if own < 1:
        return UNKNOWN_SPREAD
    seen = max(statistics.stdev(levels), _LEAST_SPREAD)
    weighed = _PSEUDO_NODES * math.log(UNKNOWN_SPREAD) + own * math.log(seen)
    return math.exp(weighed / (_PSEUDO_NODES + own))
