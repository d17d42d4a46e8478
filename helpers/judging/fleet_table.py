"""A fleet's log rates as arrays, and how far each node or card is from the others in each case. Pure.

A row is a node or a card; the functions call both nodes. The module loads numpy, so code that only lists cases must not
import it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from helpers.judging.fleet_noise import Array, Places, Truths, fast_scale, median_variance
from helpers.judging.fleet_rates import CardRates, Rates
from helpers.judging.fleet_verdict import Place, by_number
from helpers.trainers.contract.errors import SuiteError

# A card looks fast if the others of its node are slow, and the healthy one of two cards would teach that healthy cards
# are far apart. So if a card is faster than the others of its node, these count as at most so many standard deviations
# slower than is usual.
_SLOWEST_OTHERS = 4.0
# A node is slow by one case alone only if all of at least so many runs are slow: one run in fifty is bad by chance.
LEAST_RUNS = 3


def table_of_nodes(rates: Rates, least: int) -> Table | None:
    """None if there are fewer than ``least`` nodes with a case that another one has."""
    return _table({(node, ""): own for node, own in rates.items()}, least, of_cards=False)


def table_of_cards(cards: CardRates, least: int) -> Table | None:
    """The cards of nodes with several cards; None if there are fewer than ``least``."""
    several = {node: own for node, own in cards.items() if sum(any(each.values()) for each in own.values()) > 1}
    rates = {(node, card): own for node, by in several.items() for card, own in by.items()}
    return _table(rates, least, of_cards=True)


def _table(rates: Mapping[Place, Mapping[str, Sequence[float]]], least: int, *, of_cards: bool) -> Table | None:
    count: dict[str, int] = {}
    for own in rates.values():
        for case, runs in own.items():
            count[case] = count.get(case, 0) + bool(runs)
    # The cases that two or more measured.
    cases = sorted(case for case, so_many in count.items() if so_many > 1)
    places = sorted((place for place, own in rates.items() if any(own.get(case) for case in cases)), key=by_number)
    if len(places) < least:
        return None
    return Table.of(rates, places, cases, _slots(places) if of_cards else None)


def _slots(places: Sequence[Place]) -> Places:
    """For each node a row with the places of its cards, filled up with -1."""
    by_node: dict[str, list[int]] = {}
    for at, (node, _) in enumerate(places):
        by_node.setdefault(node, []).append(at)
    most = max(map(len, by_node.values()))
    return np.array([[*own, *[-1] * (most - len(own))] for own in by_node.values()], dtype=np.intp)


@dataclass(frozen=True)
class Table:
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
    ) -> Table:
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


def fewer_for_nodes(table: Table, card_table: Table, cards: CardRates, slow: Collection[Place]) -> Table:
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
    between = _variance_between_cards(card_table, not_slow(card_table, slow))
    variance = dict(zip(card_table.cases, between, strict=True))
    return replace(table, fewer=_larger(counts, np.array([variance.get(case, 0.0) for case in table.cases])))


def fewer_for_cards(table: Table, slow: Collection[Place]) -> Table:
    """The table with ``fewer``: a card may be compared with the median of fewer others than usual."""
    healthy, slots = not_slow(table, slow), table.slots
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
            usual = median_variance(max(1, int(np.median(counts[known, column]))))
            for count in np.unique(counts[known, column]):
                more = max(median_variance(int(count)) - usual, 0.0)
                found[counts[:, column] == count, column] = more * float(variance[column])
    return found


def _variance_between_cards(table: Table, healthy: Truths) -> Array:
    """The variance between healthy cards of a node by case: the median over nodes; 0 if no node has two."""
    assert table.slots is not None
    found: Array = np.zeros(len(table.cases))
    for column in range(len(table.cases)):
        own: Array = np.where((table.slots >= 0) & healthy[table.slots], table.centres[table.slots, column], np.nan)
        so_many: Array = (~np.isnan(own)).sum(axis=1).astype(np.float64)
        found[column] = _usual_variance(own[so_many > 1], so_many[so_many > 1])
    return found


def not_slow(table: Table, slow: Collection[Place]) -> Truths:
    """Which rows are not in ``slow``."""
    healthy: Truths = np.array([place not in slow for place in table.nodes])
    return healthy


def extra_variance(table: Table) -> Array:
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
            slowest = centre - _SLOWEST_OTHERS * fast_scale(usual - centre)
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
