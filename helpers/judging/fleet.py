"""Which nodes and cards of a fleet are slow beyond chance. Pure; docs/fleet.md, "How a node is judged".

Every node measured the same cases. In each case a node is compared with the median of the other nodes, and a card with
the median of the other cards of its node. How far healthy nodes, or cards, are apart is learned from the fast half of
the fleet, because a fault makes them slower and never faster. A node, or a card, has two tests: all its cases together,
and its worst case alone. Both become one p-value, and Holm's procedure over all nodes and cards together keeps the
probability of any false alarm in a healthy fleet at ``error_rate``.

A row of a ``_Table`` is a node or a card; its functions call both nodes.

The module loads numpy and scipy, so code that only lists cases must not import it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import gammaln, stdtr, stdtrit

from helpers.judging.noise import UNKNOWN_SPREAD
from helpers.judging.statistics import NORMAL_95, SIGMA_PER_MAD
from helpers.trainers.contract.errors import SuiteError

Array = np.ndarray[Any, np.dtype[np.float64]]
Truths = np.ndarray[Any, np.dtype[np.bool_]]
Places = np.ndarray[Any, np.dtype[np.intp]]

ALL_CASES = "all cases"
# A node and one of its cards by its index; the card is empty for the node itself.
Place = tuple[str, str]
# Degrees of freedom of the tails that healthy nodes may have; the last is nearly the normal distribution.
_TAILS = (3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 1000.0)
# The same for a single case, with heavy tails alone: each case of each node is looked at, so the farthest of them lies
# far out, and the nodes of one case are too few to show that.
_TAILS_OF_A_CASE = (3.0, 4.0, 5.0)
_EM_STEPS = 25
# No two nodes agree better than the smallest night effect that helpers.judging.noise expects.
_LEAST_SCALE = 0.0007
# In the mean of all cases, a case weighs at most so many times as much as the median case.
_MOST_WEIGHT = 4.0
# A case that is farther from the node's other cases counts as if it were this many standard deviations from them.
_CLIP = 3.0
# A card looks fast if the others of its node are slow, and the healthy one of two cards would teach that healthy cards
# are far apart. So if a card is faster than the others of its node, these count as at most so many standard deviations
# slower than is usual.
_SLOWEST_OTHERS = 4.0
_POWER_80 = 0.8416
# Two tests a node: all its cases, and its worst case.
_TESTS = 2
# How often the slow nodes are taken out and the others judged again.
_ROUNDS = 2
# A node is slow by one case alone only if all of at least so many runs are slow: one run in fifty is bad by chance.
LEAST_RUNS = 3
# A node needs so many cases to show how far one of them lies from the others.
LEAST_CASES = 3


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
        return _by_evidence((*self.nodes, *self.cards))

    @cached_property
    def slow(self) -> tuple[NodeVerdict, ...]:
        return tuple(each for each in self.judged if each.slow)

    @cached_property
    def suspect(self) -> tuple[NodeVerdict, ...]:
        return tuple(each for each in self.judged if each.suspect)


Rates = Mapping[str, Mapping[str, Sequence[float]]]
# Node → card → case → log rates.
CardRates = Mapping[str, Rates]
_NO_CARDS: CardRates = {}


def judge_fleet(
    rates: Rates, spread: float | None = None, rules: FleetRules = RULES, cards: CardRates = _NO_CARDS
) -> FleetVerdict | None:
    """The verdict on the nodes of ``rates`` (node → case → log rates of its runs) and on ``cards``, which measured the
    cases of one card. A node, or a card, may lack cases.

    ``spread`` is the standard deviation between healthy nodes and between healthy cards of a node as a fraction, if it
    is known. With it two nodes are enough to be judged, without it ``rules.least_nodes``; the same holds for cards.
    Returns None if neither nodes nor cards are judged. Raises SuiteError for a rate that is not finite.
    """
    least = 2 if spread is not None else rules.least_nodes
    few, card_table = few_cards(cards), _card_table(cards, least)
    slow: frozenset[Place] = frozenset()
    verdict = None
    # The slow ones are taken out of the medians and of the spread, and all are judged again. The error rate still holds
    # over all of them. A node that was slow only because of a slow card is no longer slow then, and neither are the
    # cards of a slow node.
    for _ in range(1 + _ROUNDS):
        node_table = _node_table(node_rates(rates, cards, slow, few), least)
        if card_table is not None:
            node_table = node_table and _fewer_for_nodes(node_table, card_table, cards, slow)
            card_table = _fewer_for_cards(card_table, slow)
        verdict = _verdict(node_table, card_table, slow, spread, rules)
        now = {each.place for each in verdict.slow} if verdict else set()
        found = frozenset(now | {place for place in slow if not _explained(place, now)})
        if found == slow:
            break
        slow = found
    return verdict and replace(verdict, few_cards=few)


def _explained(place: Place, slow: Collection[Place]) -> bool:
    """Whether a node has a slow card, or a card is one of a slow node."""
    node, card = place
    return (node, "") in slow if card else any(each == node and of for each, of in slow)


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
    rates: Rates, cards: CardRates, slow: Collection[Place] = (), few: Mapping[str, Collection[str]] = _NO_CARDS
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


def _node_table(rates: Rates, least: int) -> _Table | None:
    """None if there are fewer than ``least`` nodes with a case that another one has."""
    return _table({(node, ""): own for node, own in rates.items()}, least, of_cards=False)


def _card_table(cards: CardRates, least: int) -> _Table | None:
    """The cards of nodes with several cards; None if there are fewer than ``least``."""
    several = {node: own for node, own in cards.items() if sum(any(each.values()) for each in own.values()) > 1}
    rates = {(node, card): own for node, by in several.items() for card, own in by.items()}
    return _table(rates, least, of_cards=True)


def _table(rates: Mapping[Place, Mapping[str, Sequence[float]]], least: int, *, of_cards: bool) -> _Table | None:
    count: dict[str, int] = {}
    for own in rates.values():
        for case, runs in own.items():
            count[case] = count.get(case, 0) + bool(runs)
    # The cases that two or more measured.
    cases = sorted(case for case, so_many in count.items() if so_many > 1)
    places = sorted((place for place, own in rates.items() if any(own.get(case) for case in cases)), key=_by_number)
    if len(places) < least:
        return None
    return _Table.of(rates, places, cases, _slots(places) if of_cards else None)


def _by_number(place: Place) -> tuple[str, int, str]:
    """A card 10 comes behind a card 2."""
    node, card = place
    return node, int(card) if card.isdecimal() else 0, card


def _slots(places: Sequence[Place]) -> Places:
    """For each node a row with the places of its cards, filled up with -1."""
    by_node: dict[str, list[int]] = {}
    for at, (node, _) in enumerate(places):
        by_node.setdefault(node, []).append(at)
    most = max(map(len, by_node.values()))
    return np.array([[*own, *[-1] * (most - len(own))] for own in by_node.values()], dtype=np.intp)


@dataclass(frozen=True)
class _Table:
    """Nodes (rows) by cases (columns)."""

    nodes: Sequence[Place]
    cases: Sequence[str]
    # Of cards: the rows of each node (_slots). None for nodes, which are compared with all others.
    slots: Places | None
    # Medians of the log rates; NaN where a node has none.
    centres: Array
    # The fastest runs; NaN where a node has fewer than LEAST_RUNS.
    fastest: Array
    runs: Array
    # The variance between runs by case; NaN if no node has two.
    run_variance: Array
    # By how much the variance of a case is larger because its median is over fewer cards than usual. All cases of a row
    # have this error in common.
    fewer: Array

    @classmethod
    def of(
        cls,
        rates: Mapping[Place, Mapping[str, Sequence[float]]],
        nodes: Sequence[Place],
        cases: Sequence[str],
        slots: Places | None,
    ) -> _Table:
        most = max(len(rates[node].get(case, ())) for node in nodes for case in cases)
        values: Array = np.full((len(nodes), len(cases), most), np.nan)
        runs: Array = np.zeros((len(nodes), len(cases)))
        for row, node in enumerate(nodes):
            for column, case in enumerate(cases):
                found = rates[node].get(case, ())
                if not all(map(math.isfinite, found)):
                    raise SuiteError(
                        f"fleet: {case} on {' card '.join(filter(None, node))}",
                        got=list(found),
                        expected="finite log rates",
                    )
                values[row, column, : len(found)] = found
                runs[row, column] = len(found)
        # Values that are missing are NaN, and sorted behind the others.
        ordered = np.sort(values, axis=2)
        low, high = (np.maximum(runs - 1, 0) // 2).astype(np.intp), (runs // 2).astype(np.intp)
        at_low = np.take_along_axis(ordered, low[:, :, None], axis=2)[:, :, 0]
        at_high = np.take_along_axis(ordered, np.minimum(high, most - 1)[:, :, None], axis=2)[:, :, 0]
        last = np.maximum(runs - 1, 0).astype(np.intp)
        fastest = np.where(runs >= LEAST_RUNS, np.take_along_axis(ordered, last[:, :, None], axis=2)[:, :, 0], np.nan)
        centres, between_runs = (at_low + at_high) / 2, _variance_between_runs(values, runs)
        return cls(nodes, cases, slots, centres, fastest, runs, between_runs, np.zeros(runs.shape))

    def apart(self, values: Array, healthy: Truths) -> Array:
        """For each row and case: how far it is from the median of the healthy others; NaN if there is none."""
        return _medians_apart(values, healthy) if self.slots is None else _apart_in_nodes(values, healthy, self.slots)

    def others(self, healthy: Truths) -> int:
        """With how many others a row is compared."""
        if self.slots is None:
            return max(int(healthy.sum()) - 1, 1)
        return max(int(np.median((self.slots >= 0).sum(axis=1))) - 1, 1)


def _variance_between_runs(values: Array, runs: Array) -> Array:
    """The variance between runs of each case: the median over nodes, so that bad runs do not count; NaN if no node has
    two runs."""
    found: Array = np.full(values.shape[1], np.nan)
    for column in range(values.shape[1]):
        several: Truths = runs[:, column] > 1
        if several.any():
            found[column] = _usual_variance(values[several, column], runs[several, column])
    return found


def _usual_variance(values: Array, counts: Array) -> float:
    """The median over rows of the variance of a row's ``counts`` values, two or more; 0 if there is no row."""
    if not len(values):
        return 0.0
    # The median of a chi-square distribution is this share of its mean (Wilson and Hilferty).
    share = (1 - 2 / (9 * (counts - 1))) ** 3
    return float(np.median(np.nanvar(values, axis=1, ddof=1) / share))


def _median_variance(count: int) -> float:
    """The variance of the median of ``count`` values, each of which has the variance 1."""
    return min(math.pi / 2, max(1.0, count / 2)) / count


def _fewer_for_nodes(table: _Table, card_table: _Table, cards: CardRates, slow: Collection[Place]) -> _Table:
    """The table with ``fewer``: in a case of one card, a node's rate may be the median of fewer cards than usual. Slow
    cards are not among them."""
    column = {case: at for at, case in enumerate(table.cases)}
    counts: Array = np.zeros(table.centres.shape)
    for row, (node, _) in enumerate(table.nodes):
        by_card = cards.get(node, {})
        for own in [own for card, own in by_card.items() if (node, card) not in slow] or by_card.values():
            for case, runs in own.items():
                if runs and case in column:
                    counts[row, column[case]] += 1
    between = _variance_between_cards(card_table, _not_slow(card_table, slow))
    variance = dict(zip(card_table.cases, between, strict=True))
    return replace(table, fewer=_larger(counts, np.array([variance.get(case, 0.0) for case in table.cases])))


def _fewer_for_cards(table: _Table, slow: Collection[Place]) -> _Table:
    """The table with ``fewer``: a card may be compared with the median of fewer others than usual."""
    healthy, slots = _not_slow(table, slow), table.slots
    assert slots is not None
    there: Truths = (slots >= 0)[:, :, None] & (~np.isnan(table.centres) & healthy[:, None])[slots]
    others: Array = np.zeros(table.centres.shape)
    for slot in range(slots.shape[1]):
        rows = slots[:, slot] >= 0
        others[slots[rows, slot]] = (there.sum(axis=1) - there[:, slot])[rows]
    return replace(table, fewer=_larger(others, _variance_between_cards(table, healthy)))


def _larger(counts: Array, variance: Array) -> Array:
    """By how much the variance of a median of ``counts`` cards is larger than that of as many as usual, where cards
    have this variance by case."""
    found: Array = np.zeros(counts.shape)
    for column in range(counts.shape[1]):
        known = counts[:, column] > 0
        if known.any():
            usual = _median_variance(max(1, int(np.median(counts[known, column]))))
            for count in np.unique(counts[known, column]):
                more = max(_median_variance(int(count)) - usual, 0.0)
                found[counts[:, column] == count, column] = more * float(variance[column])
    return found


def _variance_between_cards(table: _Table, healthy: Truths) -> Array:
    """The variance between healthy cards of a node by case: the median over nodes; 0 if no node has two."""
    assert table.slots is not None
    found: Array = np.zeros(len(table.cases))
    for column in range(len(table.cases)):
        own: Array = np.where((table.slots >= 0) & healthy[table.slots], table.centres[table.slots, column], np.nan)
        so_many: Array = (~np.isnan(own)).sum(axis=1).astype(np.float64)
        found[column] = _usual_variance(own[so_many > 1], so_many[so_many > 1])
    return found


def _not_slow(table: _Table, slow: Collection[Place]) -> Truths:
    healthy: Truths = np.array([place not in slow for place in table.nodes])
    return healthy


@dataclass(frozen=True)
class _Tested:
    """The rows of a table with their p-values."""

    table: _Table
    every: _AllCases
    noise: _Noise
    p_value: Array
    # For each row, the test with the smaller p-value: a case, or ALL_CASES.
    by: Sequence[str]
    # For each row, how far it is from the others by that test (a log rate).
    by_shift: Array

    @classmethod
    def of(cls, table: _Table, slow: Collection[Place], spread: float | None, rules: FleetRules) -> _Tested:
        healthy = _not_slow(table, slow)
        if healthy.sum() < rules.least_nodes:
            healthy = np.ones(len(table.nodes), dtype=bool)
        every = _all_cases(table, healthy)
        error = np.hypot(every.error, every.fewer)
        noise, p_all = _compared(every.shift, error, healthy, spread, rules, _TAILS, table.others(healthy))
        p_case, worst = _worst_case(table, healthy, every, spread, rules)
        by_case = p_case < p_all
        return cls(
            table,
            every,
            noise,
            np.minimum(1.0, _TESTS * np.minimum(p_all, p_case)),
            [table.cases[worst[row]] if by_case[row] else ALL_CASES for row in range(len(table.nodes))],
            np.where(by_case, every.apart[np.arange(len(table.nodes)), worst], every.shift),
        )

    def spread(self, stated: float | None, error_rate: float) -> Spread:
        needed = self.noise.tail.quantile(error_rate / _TESTS / len(self.table.nodes))
        variances = zip(self.table.cases, self.table.run_variance, strict=True)
        return Spread(
            value=stated if stated is not None else self.noise.usual * self.noise.tail.scale,
            smallest_drop=-math.expm1(self.noise.usual * (needed - _POWER_80 * self.noise.tail.scale)),
            run_sigma={case: None if math.isnan(found) else math.sqrt(found) for case, found in variances},
        )

    def verdicts(self, slow: Truths, suspect: Truths, chance: Array) -> tuple[NodeVerdict, ...]:
        shift, error = self.every.shift, self.every.error
        return _by_evidence(
            NodeVerdict(
                node=node,
                card=card,
                slow=bool(slow[row]),
                suspect=bool(suspect[row]),
                shift=math.expm1(shift[row]),
                low=math.expm1(shift[row] - NORMAL_95 * error[row]),
                high=math.expm1(shift[row] + NORMAL_95 * error[row]),
                p_value=float(self.p_value[row]),
                chance=float(chance[row]),
                by=self.by[row],
                by_shift=math.expm1(self.by_shift[row]),
                cases=int(self.every.known[row].sum()),
                runs=int(self.table.runs[row].sum()),
            )
            for row, (node, card) in enumerate(self.table.nodes)
        )


def _by_evidence(verdicts: Iterable[NodeVerdict]) -> tuple[NodeVerdict, ...]:
    return tuple(
        sorted(verdicts, key=lambda each: (not each.slow, not each.suspect, each.chance, *_by_number(each.place)))
    )


def _verdict(
    nodes: _Table | None, cards: _Table | None, slow: Collection[Place], spread: float | None, rules: FleetRules
) -> FleetVerdict | None:
    tested = [None if table is None else _Tested.of(table, slow, spread, rules) for table in (nodes, cards)]
    families = [each for each in tested if each is not None]
    if not families:
        return None
    p_values = np.concatenate([each.p_value for each in families])
    # Each family has the same part of the error rate, and each of its rows the same part of that.
    weights = np.concatenate([np.full(len(each.p_value), 1 / len(families) / len(each.p_value)) for each in families])
    beyond = np.expm1(np.nan_to_num(np.concatenate([each.by_shift for each in families]))) < -rules.tolerance
    found_slow = _holm(p_values, weights, beyond, rules.error_rate)
    suspect = _benjamini_hochberg(p_values, weights, beyond, rules.suspect_rate) & ~found_slow
    parts: list[tuple[NodeVerdict, ...]] = []
    at = 0
    for each in tested:
        mine = slice(at, at + (0 if each is None else len(each.p_value)))
        chance = (p_values / weights)[mine]
        parts.append(() if each is None else each.verdicts(found_slow[mine], suspect[mine], chance))
        at = mine.stop
    node_spread, card_spread = (
        None if each is None else each.spread(spread, rules.error_rate / len(families)) for each in tested
    )
    return FleetVerdict(parts[0], parts[1], node_spread, card_spread, spread is not None, rules)


@dataclass(frozen=True)
class _AllCases:
    """All cases of each node together."""

    # By node and case: how far the node is from the median of the other nodes; NaN if that is not known.
    apart: Array
    # By node and case, whether it is known.
    known: Truths
    # By node: the weighted mean of its cases.
    shift: Array
    # By node: the standard error of that mean, from how far a node's cases are apart.
    error: Array
    # By node: its standard error because of fewer cards than usual.
    fewer: Array


def _all_cases(table: _Table, healthy: Truths) -> _AllCases:
    apart = table.apart(table.centres, healthy)
    known: Truths = ~np.isnan(apart)
    own: Array = np.array(
        [float(np.median(apart[row, known[row]])) if known[row].any() else 0.0 for row in range(len(apart))]
    )
    # How far a case lies from the node's other cases; the variance is larger where a node has fewer runs than usual.
    residual = apart - own[:, None]
    variance = np.array([_spread_about_zero(column[healthy]) ** 2 for column in residual.T])
    variance = np.maximum(variance, max(float(np.median(variance)) / _MOST_WEIGHT, _LEAST_SCALE**2))
    variances = variance[None, :] + _extra_variance(table)
    clipped = own[:, None] + np.clip(residual, -_CLIP * np.sqrt(variances), _CLIP * np.sqrt(variances))
    weights = np.where(known, 1 / variances, 0.0)
    # If no other node measured a case of a node, nothing is known of it, and its error is as large as 1.
    total = np.maximum(weights.sum(axis=1), 1.0)
    shift = np.where(known, clipped * weights, 0.0).sum(axis=1) / total
    return _AllCases(apart, known, shift, np.sqrt(1 / total), (weights * np.sqrt(table.fewer)).sum(axis=1) / total)


@dataclass(frozen=True)
class _Noise:
    """How healthy nodes differ."""

    # The usual standard deviation, of log rates.
    usual: float
    # Their distribution, in units of ``usual``.
    tail: _Tail


def _compared(
    shift: Array,
    error: Array,
    healthy: Truths,
    spread: float | None,
    rules: FleetRules,
    tails: Sequence[float],
    others: int,
) -> tuple[_Noise, Array]:
    """The noise of the ``shift`` of healthy nodes, and each node's p-value. ``error`` is the standard error of each
    node's own shift, ``others`` is with how many others a node was compared."""
    if spread is None:
        middle = float(np.median(shift[healthy]))
        usual_error = float(np.median(error[healthy] ** 2))
        common = max(_fast_scale(shift[healthy] - middle) ** 2 - usual_error, 0.0)
        base = np.sqrt(common + error**2)
        tail = _Tail.of((shift[healthy] - middle) / base[healthy], float(np.median(base)), rules, tails)
    else:
        # The median of the others has an error, too.
        cost = 1 + _median_variance(others)
        middle, base, tail = 0.0, np.sqrt(cost * (spread**2 + error**2)), _Tail.normal()
    return _Noise(float(np.median(base[healthy])), tail), tail.below((shift - middle) / base)


def _worst_case(
    table: _Table,
    healthy: Truths,
    every: _AllCases,
    spread: float | None,
    rules: FleetRules,
) -> tuple[Array, Places]:
    """Each node's p-value by its worst case, and that case's column.

    The fastest run of a case is compared with the node's other cases, because a shift that all cases share would hide
    how far a single case is away. Nodes with fewer than LEAST_CASES cases, and cases with fewer than LEAST_RUNS runs,
    are left out.
    """
    p_case: Array = np.ones(len(table.nodes))
    worst: Places = np.zeros(len(table.nodes), dtype=np.intp)
    several: Truths = every.known.sum(axis=1) >= LEAST_CASES
    fastest = table.apart(table.fastest, healthy) - every.shift[:, None]
    for column in range(len(table.cases)):
        apart: Array = fastest[:, column]
        there: Truths = ~np.isnan(apart) & several
        if (there & healthy).sum() < (1 if spread is not None else rules.least_nodes):
            continue
        # A spread that is learned from the fastest runs includes their error.
        own_error = 0.0 if spread is None else math.sqrt(float(np.nan_to_num(table.run_variance[column])))
        fewer = np.maximum(np.sqrt(table.fewer[there, column]), every.fewer[there])
        error: Array = np.hypot(own_error, fewer)
        found: Array = np.ones(len(apart))
        others = table.others(healthy & there)
        _, found[there] = _compared(apart[there], error, healthy[there], spread, rules, _TAILS_OF_A_CASE, others)
        better = found < p_case
        p_case, worst = np.where(better, found, p_case), np.where(better, column, worst)
    return np.minimum(1.0, p_case * every.known.sum(axis=1)), worst


def _extra_variance(table: _Table) -> Array:
    """By how much the variance of a node's median is larger because it has fewer runs of a case than usual."""
    columns = range(len(table.cases))
    typical: Array = np.array([float(np.median(table.runs[table.runs[:, at] > 0, at])) for at in columns])
    more = 1 / np.maximum(table.runs, 1) - 1 / typical[None, :]
    extra: Array = np.nan_to_num(table.run_variance)[None, :] * math.pi / 2 * np.maximum(more, 0.0)
    return extra


def _medians_apart(centres: Array, healthy: Truths) -> Array:
    """For each node and case: how far it is from the median of the healthy other nodes; NaN if there is none."""
    found = np.full_like(centres, np.nan)
    for column in range(centres.shape[1]):
        mine: Array = centres[:, column]
        known: Truths = ~np.isnan(mine)
        own: Truths = known & healthy
        if not own.any():
            continue
        ordered: Array = np.sort(mine[own])
        others: Array = np.full(len(mine), float(np.median(ordered)))
        places: Places = np.searchsorted(ordered, mine[own])
        others[own] = _medians_without(ordered, places)
        found[known, column] = (mine - others)[known]
    return found


def _apart_in_nodes(values: Array, healthy: Truths, slots: Places) -> Array:
    """For each card and case: how far it is from the median of the healthy other cards of its node; NaN if there is
    none."""
    found = np.full_like(values, np.nan)
    there = slots >= 0
    for column in range(values.shape[1]):
        mine: Array = values[:, column]
        known = mine[healthy & ~np.isnan(mine)]
        if not len(known):
            continue
        mine = mine - float(np.median(known))
        own: Array = np.where(there & healthy[slots], mine[slots], np.nan)
        middle: Array = np.full(len(mine), np.nan)
        for slot in range(slots.shape[1]):
            others: Array = own.copy()
            others[:, slot] = np.nan
            middle[slots[there[:, slot], slot]] = _row_medians(others)[there[:, slot]]
        apart = mine - middle
        usual = middle[~np.isnan(middle)]
        if len(usual):
            centre = float(np.median(usual))
            slowest = centre - _SLOWEST_OTHERS * _fast_scale(usual - centre)
            apart = np.where(apart > 0, np.maximum(mine - np.maximum(middle, slowest), 0.0), apart)
        found[:, column] = apart
    return found


def _row_medians(values: Array) -> Array:
    """The median of each row without its NaN; NaN if nothing is left."""
    ordered = np.sort(values, axis=1)
    known = (~np.isnan(values)).sum(axis=1)
    rows = np.arange(len(values))
    low, high = np.maximum(known - 1, 0) // 2, np.minimum(known // 2, values.shape[1] - 1)
    found: Array = (ordered[rows, low] + ordered[rows, high]) / 2
    return found


def _medians_without(ordered: Array, places: Places) -> Array:
    """The median of ``ordered`` without the value at each of ``places``; NaN if nothing is left."""
    left = len(ordered) - 1
    if not left:
        return np.full(len(places), np.nan)
    low, high = (left - 1) // 2, left // 2
    found: Array = (ordered[low + (places <= low)] + ordered[high + (places <= high)]) / 2
    return found


def _spread_about_zero(values: Array) -> float:
    known = values[~np.isnan(values)]
    return SIGMA_PER_MAD * float(np.median(np.abs(known))) if len(known) else _LEAST_SCALE


def _fast_scale(values: Array) -> float:
    """The standard deviation of the fast half: as if the slow half were its mirror image."""
    fast = values[values >= 0]
    return max(SIGMA_PER_MAD * float(np.median(fast)) if len(fast) else 0.0, _LEAST_SCALE)


@dataclass(frozen=True)
class _Tail:
    """How healthy nodes vary, in units of their expected spread: a mixture of Student's t distributions.

    The weights say how well each explains the fast half. With few nodes heavy tails cannot be excluded, so that a node
    must then be much slower to be called slow.
    """

    freedom: Array
    scales: Array
    weights: Array

    @classmethod
    def normal(cls) -> _Tail:
        return cls(np.array([_TAILS[-1]]), np.ones(1), np.ones(1))

    @classmethod
    def of(cls, values: Array, unit: float, rules: FleetRules, tails: Sequence[float]) -> _Tail:
        """``values`` of healthy nodes, in units of ``unit`` (a log rate)."""
        fast = np.abs(values[values >= 0])
        own = (len(values) - 1) / 2
        scales, logs = [], []
        for freedom in tails:
            scale = _scale_of(fast, freedom)
            logs.append(_log_density(fast / scale, freedom) - len(fast) * math.log(scale))
            expected = math.log(rules.unknown_spread / unit) * rules.worth_nodes
            scales.append(math.exp((expected + own * math.log(scale)) / (rules.worth_nodes + own)))
        # Heavy tails are expected: the farthest of many nodes shows what the others do not.
        logs = [log - math.log(freedom) / 2 for log, freedom in zip(logs, tails, strict=True)]
        weights = np.exp(np.array(logs) - max(logs))
        freedom = np.minimum(np.array(tails), max(own, 1.0))
        return cls(freedom, np.array(scales), weights / weights.sum())

    @property
    def scale(self) -> float:
        """The standard deviation of a normal distribution with the same middle half."""
        return float((self.weights * self.scales * stdtrit(self.freedom, 0.75)).sum() / 0.6745)

    def below(self, values: Array) -> Array:
        """The probability that a healthy node is as slow as each of ``values``."""
        each = stdtr(self.freedom[:, None], values[None, :] / self.scales[:, None])
        found: Array = (self.weights[:, None] * each).sum(axis=0)
        return found

    def quantile(self, probability: float) -> float:
        """The value below which a healthy node lies with this small probability."""
        low, high = -1e6, 0.0
        for _ in range(80):
            middle = -math.sqrt(low * high) if high < -1e-3 else low / 2 if low < -2e-3 else high
            if float(self.below(np.array([middle]))[0]) < probability:
                low = middle
            else:
                high = middle
        return high


def _scale_of(fast: Array, freedom: float) -> float:
    """The likeliest scale of the upper half of a t distribution (expectation maximisation)."""
    scale = max(SIGMA_PER_MAD * float(np.median(fast)), 1e-6)
    for _ in range(_EM_STEPS):
        weights = (freedom + 1) / (freedom + (fast / scale) ** 2)
        scale = max(math.sqrt(float((weights * fast**2).mean())), 1e-6)
    return scale


def _log_density(values: Array, freedom: float) -> float:
    constant = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - 0.5 * math.log(freedom * math.pi)
    return float((constant - (freedom + 1) / 2 * np.log1p(values**2 / freedom)).sum())


def _holm(p_values: Array, weights: Array, beyond: Truths, error_rate: float) -> Truths:
    """The hypotheses that Holm's procedure rejects and that also lie beyond the tolerance. The weights sum to 1 (Holm
    1979, "A simple sequentially rejective multiple test procedure", section 4)."""
    found = np.zeros(len(p_values), dtype=bool)
    order = np.argsort(p_values / weights, kind="stable")
    # The weights of those that are not rejected yet.
    left = np.cumsum(weights[order][::-1])[::-1]
    for rank, row in enumerate(order):
        if p_values[row] > error_rate * weights[row] / left[rank]:
            break
        found[row] = beyond[row]
    return found


def _benjamini_hochberg(p_values: Array, weights: Array, beyond: Truths, rate: float) -> Truths:
    """The hypotheses that Benjamini and Hochberg's procedure rejects and that also lie beyond the tolerance. The
    weights sum to 1 (Genovese, Roeder and Wasserman 2006, "False discovery control with p-value weighting")."""
    weighted = p_values / (weights * len(p_values))
    order = np.argsort(weighted, kind="stable")
    below = np.flatnonzero(weighted[order] <= rate * np.arange(1, len(order) + 1) / len(order))
    found = np.zeros(len(p_values), dtype=bool)
    found[order[: below[-1] + 1 if len(below) else 0]] = True
    return found & beyond
