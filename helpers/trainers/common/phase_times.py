"""Divides a stretch of time where several things happen at once: computing, reducing gradients, copying, waiting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Generic, Hashable, Iterable, List, Sequence, Set, Tuple, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Claim(Generic[K]):
    """From ``start`` to ``end`` (seconds) there was ``what``."""

    what: K
    start: float
    end: float


def divided(ranked: Sequence[Iterable[Claim[K]]]) -> Dict[K, float]:
    """The seconds of each thing. Each moment counts once: for the claim of the earliest group that has one there, and
    within a group for the claim that began first."""
    edges: List[Tuple[float, bool, Tuple[int, float, int], K]] = []
    for rank, claims in enumerate(ranked):
        for number, claim in enumerate(claims):
            if claim.end > claim.start:
                order = (rank, claim.start, number)
                edges += [(claim.start, True, order, claim.what), (claim.end, False, order, claim.what)]
    edges.sort(key=lambda edge: edge[0])
    whats = {order: what for _, _, order, what in edges}
    seconds: Dict[K, float] = {}
    active: Set[Tuple[int, float, int]] = set()
    before = 0.0
    for at, begins, order, _ in edges:
        if active and at > before:
            winner = whats[min(active)]
            seconds[winner] = seconds.get(winner, 0.0) + at - before
        before = at
        (active.add if begins else active.discard)(order)
    return seconds
