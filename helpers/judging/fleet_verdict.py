"""What is said of the nodes and cards of a fleet, and the thresholds by which it is said. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from helpers.judging.noise import UNKNOWN_SPREAD

ALL_CASES = "all cases"
# A node and one of its cards by its index; the card is empty for the node itself.
Place = tuple[str, str]


@dataclass(frozen=True)
class FleetRules:
    """The thresholds of the verdict on a fleet."""

    # The probability that a fleet of healthy nodes and cards has any false alarm. If there are both, nodes have one
    # half of it and cards the other, so that many cards do not hide a slow node.
    error_rate: float = 0.05
    # The expected share of healthy ones among the nodes and cards that are called slow or suspect.
    suspect_rate: float = 0.05
    # The smallest drop that counts, as a fraction: the tolerance of recorded figures.
    tolerance: float = 0.005
    # With fewer nodes, or cards, the spread between healthy ones must be stated, because nothing can teach it.
    least_nodes: int = 8
    # The spread between nodes (a fraction) that is expected before any is measured, and for how many measured nodes
    # that counts.
    unknown_spread: float = UNKNOWN_SPREAD
    worth_nodes: float = 1.0


RULES = FleetRules()


@dataclass(frozen=True)
class NodeVerdict:
    """The verdict on one node, compared with the others, or on one card, compared with the others of its node."""

    node: str
    # The card's index; empty for a node.
    card: str
    slow: bool
    # Whether it is not called slow, but most that look like it are slow (Benjamini and Hochberg's procedure).
    suspect: bool
    # All its cases against the others, as a fraction (-0.02 is 2% slower), with the 95% interval by its own cases.
    shift: float
    low: float
    high: float
    # The probability that a healthy one is as slow.
    p_value: float
    # An upper bound for the probability that any healthy one of the fleet is as slow: the p-value times the number of
    # nodes, or of cards, and twice that if both are judged (Holm). It may be more than 1.
    chance: float
    # The test with the smaller p-value: ALL_CASES, or a case.
    by: str
    # How far it is from the others by that test, as a fraction.
    by_shift: float
    cases: int
    runs: int

    @property
    def place(self) -> Place:
        return self.node, self.card


@dataclass(frozen=True)
class Spread:
    """How far healthy nodes are apart, or healthy cards of one node."""

    # The standard deviation, all cases together, as a fraction.
    value: float
    # The drop of all cases that is found with 80% power, as a fraction.
    smallest_drop: float
    # The standard deviation between runs on one node or card, by case, as a fraction; None if each has one run.
    run_sigma: Mapping[str, float | None]


@dataclass(frozen=True)
class FleetVerdict:
    """The verdict on all nodes and cards, the slowest first."""

    # Empty if they were too few to be judged; then their spread is None.
    nodes: tuple[NodeVerdict, ...]
    # The cards of nodes with several cards; as for nodes.
    cards: tuple[NodeVerdict, ...]
    node_spread: Spread | None
    card_spread: Spread | None
    # Whether the spreads were stated by the user.
    stated: bool
    rules: FleetRules
    # By node and case of one card: on how many cards the node measured it, and on how many a node usually does. It has
    # only cases with so few cards that the node is not compared with the others by them.
    few_cards: Mapping[str, Mapping[str, tuple[int, int]]] = field(default_factory=dict)

    @cached_property
    def judged(self) -> tuple[NodeVerdict, ...]:
        """Nodes and cards, the slowest first."""
        return by_evidence((*self.nodes, *self.cards))

    @cached_property
    def slow(self) -> tuple[NodeVerdict, ...]:
        return tuple(each for each in self.judged if each.slow)

    @cached_property
    def suspect(self) -> tuple[NodeVerdict, ...]:
        return tuple(each for each in self.judged if each.suspect)


def by_evidence(verdicts: Iterable[NodeVerdict]) -> tuple[NodeVerdict, ...]:
    """The slow ones first, then the suspect ones; of either, the one that a healthy one is least likely to be like."""
    return tuple(
        sorted(verdicts, key=lambda each: (not each.slow, not each.suspect, each.chance, *by_number(each.place)))
    )


def by_number(place: Place) -> tuple[str, int, str]:
    """A card 10 comes behind a card 2."""
    node, card = place
    return node, int(card) if card.isdecimal() else 0, card
