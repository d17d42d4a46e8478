"""Which nodes and cards of a fleet are slow beyond chance. Pure; docs/fleet.md, "How a node is judged".

Every node measured the same cases. In each case a node is compared with the median of the other nodes, and a card with
the median of the other cards of its node. How far healthy nodes, or cards, are apart is learned from the fast half of
the fleet, because a fault makes them slower and never faster. A node, or a card, has two tests: all its cases together,
and its worst case alone. Both become one p-value, and Holm's procedure over all nodes and cards together keeps the
probability of any false alarm in a healthy fleet at ``error_rate``.

The module loads numpy and scipy, so code that only lists cases must not import it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from helpers.judging.fleet_noise import LEAST_SCALE, TAILS, Array, Noise, Places, Truths, compared, spread_about_zero
from helpers.judging.fleet_rates import NO_CARDS, CardRates, Rates, few_cards, node_rates
from helpers.judging.fleet_table import (
    Table,
    extra_variance,
    fewer_for_cards,
    fewer_for_nodes,
    not_slow,
    table_of_cards,
    table_of_nodes,
)
from helpers.judging.fleet_verdict import (
    ALL_CASES,
    RULES,
    FleetRules,
    FleetVerdict,
    NodeVerdict,
    Place,
    Spread,
    by_evidence,
)
from helpers.judging.statistics import NORMAL_95

# As TAILS for a single case, with heavy tails alone: each case of each node is looked at, so the farthest of them lies
# far out, and the nodes of one case are too few to show that.
_TAILS_OF_A_CASE = (3.0, 4.0, 5.0)
# In the mean of all cases, a case weighs at most so many times as much as the median case.
_MOST_WEIGHT = 4.0
# A case that is farther from the node's other cases counts as if it were this many standard deviations from them.
_CLIP = 3.0
_POWER_80 = 0.8416
# Two tests a node: all its cases, and its worst case.
_TESTS = 2
# How often the slow nodes are taken out and the others judged again.
_ROUNDS = 2
# A node needs so many cases to show how far one of them lies from the others.
LEAST_CASES = 3


def judge_fleet(
    rates: Rates, spread: float | None = None, rules: FleetRules = RULES, cards: CardRates = NO_CARDS
) -> FleetVerdict | None:
    """The verdict on the nodes of ``rates`` (node → case → log rates of its runs) and on ``cards``, which measured the
    cases of one card. A node, or a card, may lack cases.

    ``spread`` is the standard deviation between healthy nodes and between healthy cards of a node as a fraction, if it
    is known. With it two nodes are enough to be judged, without it ``rules.least_nodes``; the same holds for cards.
    Returns None if neither nodes nor cards are judged. Raises SuiteError for a rate that is not finite.
    """
    least = 2 if spread is not None else rules.least_nodes
    few, card_table = few_cards(cards), table_of_cards(cards, least)
    slow: frozenset[Place] = frozenset()
    verdict = None
    # The slow ones are taken out of the medians and of the spread, and all are judged again. The error rate still holds
    # over all of them. A node that was slow only because of a slow card is no longer slow then, and neither are the
    # cards of a slow node.
    for _ in range(1 + _ROUNDS):
        node_table = table_of_nodes(node_rates(rates, cards, slow, few), least)
        if card_table is not None:
            node_table = node_table and fewer_for_nodes(node_table, card_table, cards, slow)
            card_table = fewer_for_cards(card_table, slow)
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


@dataclass(frozen=True)
class _Tested:
    """The rows of a table with their p-values."""

    table: Table
    every: _AllCases
    noise: Noise
    p_value: Array
    # For each row, the test with the smaller p-value: a case, or ALL_CASES.
    by: Sequence[str]
    # For each row, how far it is from the others by that test (a log rate).
    by_shift: Array

    @classmethod
    def of(cls, table: Table, slow: Collection[Place], spread: float | None, rules: FleetRules) -> _Tested:
        healthy = not_slow(table, slow)
        if healthy.sum() < rules.least_nodes:
            healthy = np.ones(len(table.nodes), dtype=bool)
        every = _all_cases(table, healthy)
        error = np.hypot(every.error, every.fewer)
        noise, p_all = compared(every.shift, error, healthy, spread, rules, TAILS, table.others(healthy))
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
        return by_evidence(
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


def _verdict(
    nodes: Table | None, cards: Table | None, slow: Collection[Place], spread: float | None, rules: FleetRules
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


def _all_cases(table: Table, healthy: Truths) -> _AllCases:
    apart = table.apart(table.centres, healthy)
    known: Truths = ~np.isnan(apart)
    own: Array = np.array(
        [float(np.median(apart[row, known[row]])) if known[row].any() else 0.0 for row in range(len(apart))]
    )
    # How far a case lies from the node's other cases; the variance is larger where a node has fewer runs than usual.
    residual = apart - own[:, None]
    variance = np.array([spread_about_zero(column[healthy]) ** 2 for column in residual.T])
    variance = np.maximum(variance, max(float(np.median(variance)) / _MOST_WEIGHT, LEAST_SCALE**2))
    variances = variance[None, :] + extra_variance(table)
    clipped = own[:, None] + np.clip(residual, -_CLIP * np.sqrt(variances), _CLIP * np.sqrt(variances))
    weights = np.where(known, 1 / variances, 0.0)
    # If no other node measured a case of a node, nothing is known of it, and its error is as large as 1.
    total = np.maximum(weights.sum(axis=1), 1.0)
    shift = np.where(known, clipped * weights, 0.0).sum(axis=1) / total
    return _AllCases(apart, known, shift, np.sqrt(1 / total), (weights * np.sqrt(table.fewer)).sum(axis=1) / total)


def _worst_case(
    table: Table,
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
        _, found[there] = compared(apart[there], error, healthy[there], spread, rules, _TAILS_OF_A_CASE, others)
        better = found < p_case
        p_case, worst = np.where(better, found, p_case), np.where(better, column, worst)
    return np.minimum(1.0, p_case * every.known.sum(axis=1)), worst


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
