"""Which nodes of a fleet are slow beyond chance. Pure; docs/fleet.md, "How a node is judged".

Every node measured the same cases. A node's case is compared with the median of the other nodes. How far healthy nodes
are apart is learned from the fast half of the fleet, because a fault makes a node slower and never faster. A node has
two tests: all its cases together, and its worst case alone. Both become one p-value, and Holm's procedure over all
nodes keeps the probability of any false alarm in a fleet of healthy nodes at ``error_rate``.

The module loads numpy and scipy, so code that only lists cases must not import it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln, stdtr, stdtrit

from helpers.judging.noise import UNKNOWN_SPREAD
from helpers.judging.statistics import SIGMA_PER_MAD
from helpers.trainers.contract.errors import SuiteError

Array = np.ndarray[Any, np.dtype[np.float64]]
Truths = np.ndarray[Any, np.dtype[np.bool_]]
Places = np.ndarray[Any, np.dtype[np.intp]]

ALL_CASES = "all cases"
# Degrees of freedom of the tails that healthy nodes may have; the last is nearly the normal distribution.
_TAILS = (3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 1000.0)
# Those of a single case. There are as many cases as nodes times cases, and the farthest of so many shows tails that the
# nodes of one case are too few to teach.
_TAILS_OF_A_CASE = (3.0, 4.0, 5.0)
_EM_STEPS = 25
# No two nodes agree better than the smallest night effect that helpers.judging.noise expects.
_LEAST_SCALE = 0.0007
# How much better known than the median case a case may count in the mean of all cases.
_MOST_WEIGHT = 4.0
# A case farther from the node's other cases counts as this many standard deviations from them.
_CLIP = 3.0
_POWER_80 = 0.8416
_TWO_SIDED_95 = 1.96
# Two tests a node: all its cases, and its worst case.
_TESTS = 2
# How often the slow nodes are taken out and the others judged again.
_ROUNDS = 2
# A case alone makes a node slow only if all of at least so many runs are slow: one run in fifty is bad by chance.
LEAST_RUNS = 3
# So many cases show how far a case lies from a node's others.
LEAST_CASES = 3


@dataclass(frozen=True)
class FleetRules:
    """The thresholds of the verdict on a fleet."""

    # The probability that a fleet of healthy nodes has any false alarm.
    error_rate: float = 0.05
    # Of the nodes that are called slow or suspect, the expected share of healthy ones.
    suspect_rate: float = 0.05
    # The smallest drop that counts, as a fraction: the tolerance of recorded figures.
    tolerance: float = 0.005
    # With fewer nodes the spread between healthy nodes must be stated, because nothing can teach it.
    least_nodes: int = 8
    # What is known of the spread between nodes (a fraction) before any is measured, and how many nodes that is worth.
    unknown_spread: float = UNKNOWN_SPREAD
    worth_nodes: float = 1.0


RULES = FleetRules()


@dataclass(frozen=True)
class NodeVerdict:
    """One node held against the others."""

    node: str
    slow: bool
    # Not slow, but by Benjamini and Hochberg's procedure most nodes like it are.
    suspect: bool
    # All its cases against the other nodes, as a fraction (-0.02 is 2% slower), with the 95% interval by its own cases.
    shift: float
    low: float
    high: float
    # The probability that a healthy node is as slow; over all nodes it is multiplied by their number (Holm).
    p_value: float
    # The test that says most: ALL_CASES or a case, and how far that is from the other nodes.
    by: str
    by_shift: float
    cases: int
    runs: int


@dataclass(frozen=True)
class FleetVerdict:
    """All nodes, the slowest evidence first."""

    nodes: tuple[NodeVerdict, ...]
    # The standard deviation between healthy nodes, all cases together, as a fraction.
    spread: float
    # Whether it was stated by the user.
    stated: bool
    # The standard deviation between runs on one node, by case, as a fraction; None if each node has one run.
    run_sigma: Mapping[str, float | None]
    # The drop of all cases that is found in a node with 80% power, as a fraction.
    smallest_drop: float
    rules: FleetRules

    @property
    def slow(self) -> tuple[NodeVerdict, ...]:
        return tuple(each for each in self.nodes if each.slow)

    @property
    def suspect(self) -> tuple[NodeVerdict, ...]:
        return tuple(each for each in self.nodes if each.suspect)


Rates = Mapping[str, Mapping[str, Sequence[float]]]


def judge_fleet(rates: Rates, spread: float | None = None, rules: FleetRules = RULES) -> FleetVerdict | None:
    """The verdict on the nodes of ``rates``: node → case → log rates of its runs. A node may lack cases.

    ``spread`` is the standard deviation between healthy nodes as a fraction, if it is known. Without it None is
    returned for fewer than ``rules.least_nodes`` nodes, and in any case for fewer than two. Raises SuiteError for a
    rate that is not finite.
    """
    nodes = sorted(node for node, cases in rates.items() if any(cases.values()))
    least = 2 if spread is not None else rules.least_nodes
    cases = _shared_cases(rates, nodes)
    nodes = [node for node in nodes if any(rates[node].get(case) for case in cases)]
    if len(nodes) < least:
        return None
    table = _Table.of(rates, nodes, cases)
    slow: frozenset[int] = frozenset()
    verdict = _judged(table, slow, spread, rules)
    # The slow nodes are taken out of the others' median and of the spread, and what is left is judged again. The number
    # of nodes, over which the error rate holds, stays.
    for _ in range(_ROUNDS):
        found = slow | {at for at, each in enumerate(verdict.nodes_in_order) if each.slow}
        if found == slow or len(nodes) - len(found) < rules.least_nodes:
            break
        slow = found
        verdict = _judged(table, slow, spread, rules)
    return verdict.fleet


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


def _shared_cases(rates: Rates, nodes: Sequence[str]) -> list[str]:
    """The cases that two nodes or more measured."""
    count: dict[str, int] = {}
    for node in nodes:
        for case, runs in rates[node].items():
            count[case] = count.get(case, 0) + bool(runs)
    return sorted(case for case, so_many in count.items() if so_many > 1)


@dataclass(frozen=True)
class _Table:
    """Nodes (rows) by cases (columns)."""

    nodes: Sequence[str]
    cases: Sequence[str]
    # Medians of the log rates; NaN where a node has none.
    centres: Array
    # The fastest runs; NaN where a node has fewer than LEAST_RUNS.
    fastest: Array
    runs: Array
    # The variance between runs by case; NaN if no node has two.
    run_variance: Array

    @classmethod
    def of(cls, rates: Rates, nodes: Sequence[str], cases: Sequence[str]) -> _Table:
        most = max(len(rates[node].get(case, ())) for node in nodes for case in cases)
        values: Array = np.full((len(nodes), len(cases), most), np.nan)
        runs: Array = np.zeros((len(nodes), len(cases)))
        for row, node in enumerate(nodes):
            for column, case in enumerate(cases):
                found = rates[node].get(case, ())
                if not all(map(math.isfinite, found)):
                    raise SuiteError(f"fleet: {case} on {node}", got=list(found), expected="finite log rates")
                values[row, column, : len(found)] = found
                runs[row, column] = len(found)
        # Values that are missing are NaN, and sorted behind the others.
        ordered = np.sort(values, axis=2)
        low, high = (np.maximum(runs - 1, 0) // 2).astype(np.intp), (runs // 2).astype(np.intp)
        at_low = np.take_along_axis(ordered, low[:, :, None], axis=2)[:, :, 0]
        at_high = np.take_along_axis(ordered, np.minimum(high, most - 1)[:, :, None], axis=2)[:, :, 0]
        last = np.maximum(runs - 1, 0).astype(np.intp)
        fastest = np.where(runs >= LEAST_RUNS, np.take_along_axis(ordered, last[:, :, None], axis=2)[:, :, 0], np.nan)
        return cls(nodes, cases, (at_low + at_high) / 2, fastest, runs, _variance_between_runs(values, runs))


def _variance_between_runs(values: Array, runs: Array) -> Array:
    """The variance between runs of each case: the median over nodes, so that bad runs do not count; NaN if no node has
    two runs."""
    found: Array = np.full(values.shape[1], np.nan)
    for column in range(values.shape[1]):
        several: Truths = runs[:, column] > 1
        if several.any():
            variances = np.nanvar(values[several, column], axis=1, ddof=1)
            # The median of a chi-square distribution is this share of its mean (Wilson and Hilferty).
            share = (1 - 2 / (9 * (runs[several, column] - 1))) ** 3
            found[column] = float(np.median(variances / share))
    return found


@dataclass(frozen=True)
class _Judged:
    fleet: FleetVerdict
    # In the order of the table.
    nodes_in_order: Sequence[NodeVerdict]


def _judged(table: _Table, slow: frozenset[int], spread: float | None, rules: FleetRules) -> _Judged:
    healthy: Truths = np.array([row not in slow for row in range(len(table.nodes))])
    every = _all_cases(table, healthy)
    noise, p_all = _held(every.shift, every.error, healthy, spread, rules, _TAILS)
    p_case, worst = _worst_case(table, healthy, every, spread, rules)
    p_value = np.minimum(1.0, _TESTS * np.minimum(p_all, p_case))
    by_case = p_case < p_all
    by_shift = np.where(by_case, every.apart[np.arange(len(table.nodes)), worst], every.shift)
    beyond = np.expm1(np.nan_to_num(by_shift)) < -rules.tolerance
    found_slow = _holm(p_value, beyond, rules.error_rate)
    suspect = _benjamini_hochberg(p_value, beyond, rules.suspect_rate) & ~found_slow
    in_order = [
        NodeVerdict(
            node=node,
            slow=bool(found_slow[row]),
            suspect=bool(suspect[row]),
            shift=math.expm1(every.shift[row]),
            low=math.expm1(every.shift[row] - _TWO_SIDED_95 * every.error[row]),
            high=math.expm1(every.shift[row] + _TWO_SIDED_95 * every.error[row]),
            p_value=float(p_value[row]),
            by=table.cases[worst[row]] if by_case[row] else ALL_CASES,
            by_shift=math.expm1(by_shift[row]),
            cases=int(every.known[row].sum()),
            runs=int(table.runs[row].sum()),
        )
        for row, node in enumerate(table.nodes)
    ]
    needed = noise.tail.quantile(rules.error_rate / _TESTS / len(table.nodes))
    fleet = FleetVerdict(
        nodes=tuple(sorted(in_order, key=lambda each: (not each.slow, not each.suspect, each.p_value, each.node))),
        spread=spread if spread is not None else noise.usual * noise.tail.scale,
        stated=spread is not None,
        run_sigma={
            case: None if math.isnan(found) else math.sqrt(found)
            for case, found in zip(table.cases, table.run_variance, strict=True)
        },
        smallest_drop=-math.expm1(noise.usual * (needed - _POWER_80 * noise.tail.scale)),
        rules=rules,
    )
    return _Judged(fleet, in_order)


@dataclass(frozen=True)
class _AllCases:
    """All cases of each node together."""

    # Each node's cases against the medians of the other nodes; NaN where it has none.
    apart: Array
    known: Truths
    # Their weighted mean, and its standard deviation by how far a node's cases are apart.
    shift: Array
    error: Array


def _all_cases(table: _Table, healthy: Truths) -> _AllCases:
    apart = _medians_apart(table.centres, healthy)
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
    # A node of which no other node measured a case is as uncertain as can be.
    total = np.maximum(weights.sum(axis=1), 1.0)
    return _AllCases(apart, known, np.where(known, clipped * weights, 0.0).sum(axis=1) / total, np.sqrt(1 / total))


@dataclass(frozen=True)
class _Noise:
    """How healthy nodes differ: the usual standard deviation (a log rate), and their tail in units of it."""

    usual: float
    tail: _Tail


def _held(
    shift: Array, error: Array, healthy: Truths, spread: float | None, rules: FleetRules, tails: Sequence[float]
) -> tuple[_Noise, Array]:
    """The noise of the shifts of healthy nodes, each of which has an ``error`` of its own, and each node's p-value."""
    if spread is None:
        middle = float(np.median(shift[healthy]))
        usual_error = float(np.median(error[healthy] ** 2))
        common = max(_fast_scale(shift[healthy] - middle) ** 2 - usual_error, 0.0)
        base = np.sqrt(common + error**2)
        tail = _Tail.of((shift[healthy] - middle) / base[healthy], float(np.median(base)), rules, tails)
    else:
        # The median of the other nodes has an error, too.
        others = max(int(healthy.sum()) - 1, 1)
        cost = 1 + min(math.pi / 2, max(1.0, others / 2)) / others
        middle, base, tail = 0.0, np.sqrt(cost * (spread**2 + error**2)), _Tail.normal()
    return _Noise(float(np.median(base[healthy])), tail), tail.below((shift - middle) / base)


def _worst_case(
    table: _Table, healthy: Truths, every: _AllCases, spread: float | None, rules: FleetRules
) -> tuple[Array, Places]:
    """Each node's p-value by its worst case, and that case.

    The fastest run of a case is held against the node's other cases, because what all cases share hides how seldom a
    single case is far away. A node with fewer than LEAST_CASES and a case with fewer than LEAST_RUNS say nothing.
    """
    p_case: Array = np.ones(len(table.nodes))
    worst: Places = np.zeros(len(table.nodes), dtype=np.intp)
    several: Truths = every.known.sum(axis=1) >= LEAST_CASES
    fastest = _medians_apart(table.fastest, healthy) - every.shift[:, None]
    for column in range(len(table.cases)):
        apart: Array = fastest[:, column]
        there: Truths = ~np.isnan(apart) & several
        if (there & healthy).sum() < (1 if spread is not None else rules.least_nodes):
            continue
        # A spread that is learned from the fastest runs includes their error.
        own_error = 0.0 if spread is None else math.sqrt(float(np.nan_to_num(table.run_variance[column])))
        error: Array = np.full(int(there.sum()), own_error)
        found: Array = np.ones(len(apart))
        _, found[there] = _held(apart[there], error, healthy[there], spread, rules, _TAILS_OF_A_CASE)
        better = found < p_case
        p_case, worst = np.where(better, found, p_case), np.where(better, column, worst)
    return np.minimum(1.0, p_case * every.known.sum(axis=1)), worst


def _extra_variance(table: _Table) -> Array:
    """By how much the variance of a median is larger for a node with fewer runs of a case than the other nodes."""
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
    """The standard deviation by the fast half, as if the slow half were its mirror image."""
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


def _holm(p_values: Array, beyond: Truths, error_rate: float) -> Truths:
    """Which hypotheses Holm's procedure rejects, of those that also lie beyond the tolerance."""
    found = np.zeros(len(p_values), dtype=bool)
    for rank, row in enumerate(np.argsort(p_values, kind="stable")):
        if p_values[row] > error_rate / (len(p_values) - rank):
            break
        found[row] = beyond[row]
    return found


def _benjamini_hochberg(p_values: Array, beyond: Truths, rate: float) -> Truths:
    """Which hypotheses Benjamini and Hochberg's procedure rejects, of those that also lie beyond the tolerance."""
    order = np.argsort(p_values, kind="stable")
    below = np.flatnonzero(p_values[order] <= rate * np.arange(1, len(order) + 1) / len(order))
    found = np.zeros(len(p_values), dtype=bool)
    found[order[: below[-1] + 1 if len(below) else 0]] = True
    return found & beyond
