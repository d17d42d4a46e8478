"""The rates of nodes from those of their cards, and how far a node or a card is from the others by them. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence

from helpers.judging.fleet_verdict import ALL_CASES, Place

Rates = Mapping[str, Mapping[str, Sequence[float]]]
# Node → card → case → log rates.
CardRates = Mapping[str, Rates]
NO_CARDS: CardRates = {}


def few_cards(cards: CardRates) -> dict[str, dict[str, tuple[int, int]]]:
    """FleetVerdict.few_cards: the nodes that measured a case of one card on fewer than half of the usual number of
    cards. The median of so few cannot be compared with that of the other nodes."""
    counts: dict[str, dict[str, int]] = {}
    for node, by_card in cards.items():
        for own in by_card.values():
            for case, runs in own.items():
                if runs:
                    of_case = counts.setdefault(case, {})
                    of_case[node] = of_case.get(node, 0) + 1
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for case, by_node in sorted(counts.items()):
        usual = int(statistics.median_high(by_node.values()))
        for node, count in by_node.items():
            if 2 * count < usual:
                found.setdefault(node, {})[case] = count, usual
    return dict(sorted(found.items()))


def node_rates(
    rates: Rates, cards: CardRates, slow: Collection[Place] = (), few: Mapping[str, Collection[str]] = NO_CARDS
) -> dict[str, dict[str, Sequence[float]]]:
    """The rates of nodes. In a case of one card a node's run is the median of its cards' runs with the same number;
    slow cards are left out if the node has others, because they are no fault of the node. ``few`` names, by node, the
    cases of one card that are left out."""
    found: dict[str, dict[str, Sequence[float]]] = {node: dict(own) for node, own in rates.items()}
    for node, by_card in cards.items():
        kept = [own for card, own in by_card.items() if (node, card) not in slow] or list(by_card.values())
        for case in dict.fromkeys(case for own in kept for case in own):
            if case in few.get(node, ()):
                continue
            runs = [own[case] for own in kept if own.get(case)]
            found.setdefault(node, {})[case] = [
                statistics.median(run[number] for run in runs if number < len(run))
                for number in range(max(map(len, runs), default=0))
            ]
    return found


def shifts_in(rates: Rates, nodes: Mapping[str, str]) -> dict[str, float]:
    """How far nodes are from the median of all nodes, as fractions. ``nodes`` says by what: a case, or ALL_CASES, which
    is the median of a node's cases. A node without such a case is left out."""
    by_case: dict[str, dict[str, float]] = {}
    for node, cases in rates.items():
        for case, found in cases.items():
            if found:
                by_case.setdefault(case, {})[node] = statistics.median(found)
    apart: dict[str, list[float]] = {}
    for case, centres in by_case.items():
        middle = statistics.median(centres.values())
        for node, by in nodes.items():
            if node in centres and by in (ALL_CASES, case) and len(centres) > 1:
                apart.setdefault(node, []).append(centres[node] - middle)
    return {node: math.expm1(statistics.median(found)) for node, found in apart.items()}


def card_shifts_in(cards: CardRates, places: Mapping[Place, str]) -> dict[Place, float]:
    """How far cards are from the median of the other cards of their node; as ``shifts_in`` for nodes."""
    found = {}
    for (node, card), by in places.items():
        own = {case: statistics.median(runs) for case, runs in cards.get(node, {}).get(card, {}).items() if runs}
        apart = []
        for case, centre in own.items():
            others = [
                statistics.median(runs[case]) for each, runs in cards[node].items() if each != card and runs.get(case)
            ]
            if others and by in (ALL_CASES, case):
                apart.append(centre - statistics.median(others))
        if apart:
            found[node, card] = math.expm1(statistics.median(apart))
    return found
