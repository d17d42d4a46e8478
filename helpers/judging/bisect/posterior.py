"""Where in an ordered list of builds the speed dropped: the probability of every position, and where to measure next.

The differences of interleaved pairs (log rate of the probed build less that of the good one) have the e-value's
likelihood (case.evalue): heavy tails, and a noise scale k * sigma with k unknown and shared by all pairs.
Builds before the change lie at 0, builds after it at a level of its own. No change, one change and two changes are
weighed against each other; sizes, levels and k are averaged over, not estimated (docs/bisect.md, "How it works"). The
module loads numpy, so what only lists cases must not import it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from helpers.judging.case.evalue import (
    FACTORS,
    LARGEST_DROP,
    LOG_FACTOR_WEIGHTS,
    SMALLEST_DROP,
    TAIL_SHARE,
    TAIL_WIDTH,
    Array,
    log_likelihood,
)

Indices = np.ndarray[Any, np.dtype[np.int64]]

# The probabilities before anything is measured. Whoever bisects suspects a drop, and commits that slow training down
# are rare.
NO_CHANGE, TWO_CHANGES = 0.2, 0.1
# The probability that a change is a gain. Without it, a fast build would be explained by a drop that does not exist.
GAIN = 0.1
# Two drops count as equally large if one exceeds the other by at most this share, because no measurement could tell:
# either may be named.
AS_LARGE = 0.7
# Levels lie so close that sums over them are exact to 0.1% until a segment has 100 pairs.
_LEVELS_A_SIGMA = 4
# How far beyond the differences levels are searched, and the most levels.
_MARGIN_SIGMAS, _MARGIN, _MOST_LEVELS = 4.0, 0.02, 480
# Lattices of the same extent share what is cached.
_ROUNDED = 16
# A noise factor that is less likely than the likeliest by e^-14 is left out.
_UNLIKELY = 14.0
# What is less likely by e^-40 is lost in the rounding of a sum.
_UNSEEN = 40.0
# So many pairs of a build are fitted at a time.
_PART = 8
# To choose the next build, hypotheses less probable than this are left out, and so are all but so many hypotheses of
# two changes.
_NEGLIGIBLE, _MOST_DOUBLE = 1e-3, 24
# The most builds that are considered as the next one.
_MOST_CANDIDATES = 96


@dataclass(frozen=True, eq=False)
class Posterior:
    """What the pairs say about the first build with the largest drop.

    The measured builds divide the list into gaps: the changes in gap g come after measured build number g and not after
    number g + 1. Number 0 is the good build; the last gap ends at the end of the list.
    """

    # By gap, the build before it and its last build.
    gaps: tuple[tuple[int, int], ...]
    # By build: the probability that it is the first with the largest drop; 0 for the good build.
    positions: tuple[float, ...]
    # The probability that there is no drop at any build.
    no_drop: float
    # The probability that the last measured build is slower, or faster, than the good one.
    slower_at_end: float
    faster_at_end: float
    # The probability that there are two changes.
    two_changes: float
    # By gap: the probability that it holds the largest drop, or one nearly as large (AS_LARGE).
    in_gap: tuple[float, ...]
    # What choose() needs.
    outlook: Outlook

    @property
    def bits(self) -> float:
        """The entropy of the position."""
        shares = np.array([*self.positions, self.no_drop])
        shares = shares[shares > 0]
        return float(-(shares * np.log2(shares)).sum())


@dataclass(frozen=True, eq=False)
class Outlook:
    """A summary of the hypotheses: each with its probability, its target and its levels, as normal distributions."""

    weights: Array
    # The gap of the largest drop; the number of gaps if there is none.
    targets: Indices
    # Gaps of the first and of the second change; the number of gaps if there is none.
    first: Indices
    second: Indices
    # (hypotheses, 3): mean and standard deviation of the levels before, between and after the changes.
    means: Array
    spreads: Array
    # Standard deviation of a pair's difference, as the pairs show it.
    scale: float
    # By build, the sum of the prior up to it; and the measured builds, with 0 before and the last build behind them.
    cumulative: Array
    edges: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Tables:
    """Log likelihoods by gap (rows), noise factor and level."""

    edges: tuple[int, ...]
    # By build, the sum of the prior up to it; by gap, its part of the prior.
    cumulative: Array
    prior: Array
    factors: Array
    levels: Array
    sizes: _Sizes
    # For the builds before a gap, if they lie at 0; with the prior of the noise factor.
    good: Array
    # For the builds before a gap, and for those after it, if they lie at a level.
    before: Array
    after: Array


@dataclass(frozen=True, eq=False)
class _Double:
    """The likelihoods of the hypotheses of two changes."""

    # For each kind of _Sizes.second: by pair of gaps.
    shares: tuple[Array, ...]
    # By noise factor, over all pairs of gaps.
    by_factor: Array
    # By pair of gaps, noise factor and level between the changes, without the second change.
    between: Array
    # By gap of the second change, noise factor and level between the changes: the factor for the second change.
    second: Array


def weigh(differences: Mapping[int, Sequence[float]], prior: Sequence[float], sigma: float) -> Posterior:
    """The posterior from the pairs' ``differences`` by build; those of build 0 are the good build beside itself.

    ``prior`` has a weight for each build (that of build 0 is left out), ``sigma`` is the expected standard deviation of
    a pair's difference. All differences are natural logarithms.
    """
    tables = _tabulate(differences, np.array(prior, dtype=float), sigma)
    count = len(tables.prior)
    log_none = tables.good[-1] + math.log(NO_CHANGE)
    with np.errstate(divide="ignore"):
        log_prior = np.log(tables.prior)
    log_one = tables.good[:, :, None] + tables.after + tables.sizes.log_first
    log_one += (log_prior + math.log((1 - NO_CHANGE) * (1 - TWO_CHANGES)))[:, None, None]
    peaks = tables.after.max(axis=2, keepdims=True)
    at, to, log_two = _log_double(tables, log_prior, peaks)
    peaks_two = log_two.max(axis=(1, 2))
    highest = max(float(each.max()) for each in (log_none, log_one, peaks_two) if each.size)
    likely = np.flatnonzero(peaks_two > highest - _UNSEEN)
    at, to = at[likely], to[likely]
    none, one, two = (np.exp(each - highest) for each in (log_none, log_one, log_two[likely]))
    double = _double(tables, np.exp(tables.after - peaks), to, two)
    every, is_first, is_second, first_will_do, second_will_do, slower = double.shares
    total = float(none.sum() + one.sum() + every.sum())
    drops = one[:, :, tables.levels < 0].sum(axis=(1, 2))
    largest, will_do = drops.copy(), drops.copy()
    for gap, share, shared in ((at, is_first, first_will_do), (to, is_second, second_will_do)):
        np.add.at(largest, gap, share)
        np.add.at(will_do, gap, shared)
    # A change behind the last measured build is not seen there.
    seen = slice(0, count - 1)
    outlook = _outlook(tables, none, one, (at, to), double, total)
    return Posterior(
        gaps=tuple(zip(tables.edges, tables.edges[1:], strict=False)),
        positions=_by_build(tables, largest / total),
        no_drop=max(0.0, 1 - float(largest.sum()) / total),
        slower_at_end=float(drops[seen].sum() + slower.sum()) / total,
        faster_at_end=float((one.sum(axis=(1, 2)) - drops)[seen].sum() + (every - slower).sum()) / total,
        two_changes=float(every.sum()) / total,
        in_gap=tuple(map(float, will_do / total)),
        outlook=outlook,
    )


def _log_double(tables: _Tables, log_prior: Array, peaks: Array) -> tuple[Indices, Indices, Array]:
    """The gaps of the first and of the second of two changes, by pair of gaps; and the log likelihoods by pair, noise
    factor and level between the changes. In place of the likelihood of the level behind both they have its maximum,
    ``peaks``."""
    # Two changes in one gap look like one change, because only builds around the gap were measured.
    at, to = np.triu_indices(len(tables.prior), 1)
    real = (tables.prior[at] > 0) & (tables.prior[to] > 0)
    at, to = at[real], to[real]
    weights = log_prior + math.log(2 * (1 - NO_CHANGE) * TWO_CHANGES)
    start = tables.good[:, :, None] - tables.before + tables.sizes.log_first + log_prior[:, None, None]
    end = tables.before + peaks + weights[:, None, None]
    log_two: Array = start[at]
    log_two += end[to]
    return at, to, log_two


def _double(tables: _Tables, shapes: Array, to: Indices, two: Array) -> _Double:
    """``two`` has the likelihoods by pair of gaps, noise factor and level between the changes; ``shapes`` has those by
    gap of the second change, noise factor and level behind it; ``to`` are the gaps of the second changes."""
    factors, levels = two.shape[1:]
    kinds = tables.sizes.second.shape[1] // levels
    shares: Array = np.zeros((len(to), kinds))
    second: Array = np.zeros((len(tables.prior), factors, levels))
    by_factor: Array = np.zeros(factors)
    for gap in np.unique(to):
        # If something was measured behind the gap, few levels are likely.
        seen = np.flatnonzero(shapes[gap].max(axis=0) > math.exp(-_UNSEEN))
        reached = slice(int(seen[0]), int(seen[-1]) + 1)
        behind = (shapes[gap][:, reached] @ tables.sizes.second[reached]).reshape(factors, kinds, levels)
        mine = two[to == gap]
        flat = behind.transpose(0, 2, 1).reshape(factors * levels, kinds)
        shares[to == gap] = mine.reshape(len(mine), factors * levels) @ flat
        second[gap] = behind[:, 0]
        by_factor += (mine.sum(axis=0) * second[gap]).sum(axis=1)
    return _Double(tuple(shares.T), by_factor, two, second)


def _tabulate(differences: Mapping[int, Sequence[float]], weights: Array, sigma: float) -> _Tables:
    weights[0] = 0.0
    cumulative = np.cumsum(weights / weights.sum())
    measured = sorted(build for build, pairs in differences.items() if build and pairs)
    edges = (0, *measured, len(weights) - 1)
    lattice = _lattice([each for pairs in differences.values() for each in pairs], sigma)
    low, high, step = lattice
    fits = np.array([_fit(tuple(map(float, differences[build])), sigma, lattice) for build in measured])
    fits = fits.reshape(len(measured), len(FACTORS), high - low + 1)
    itself = _fit(tuple(map(float, differences.get(0, ()))), sigma, lattice)[:, -low]
    zeros = np.zeros((1, *fits.shape[1:]))
    before = np.concatenate([zeros, np.cumsum(fits, axis=0)])
    good = before[:, :, -low] + itself + LOG_FACTOR_WEIGHTS
    after = before[-1] - before
    kept = _likely(good, after, fits, itself)
    return _Tables(
        edges=edges,
        cumulative=cumulative,
        prior=np.diff(cumulative[list(edges)]),
        factors=np.asarray(FACTORS[kept], dtype=np.float64),
        levels=np.asarray(np.arange(low, high + 1) * step, dtype=np.float64),
        sizes=_Sizes.of(lattice),
        good=good[:, kept],
        before=before[:, kept],
        after=after[:, kept],
    )


def _likely(good: Array, after: Array, fits: Array, itself: Array) -> Indices:
    """The noise factors that are likely under some number of changes: none, one, or one at every build."""
    few = np.maximum(good[-1], (good + after.max(axis=2)).max(axis=0))
    many = fits.max(axis=2).sum(axis=0) + itself + LOG_FACTOR_WEIGHTS
    kept: Indices = np.flatnonzero((few > few.max() - _UNLIKELY) | (many > many.max() - _UNLIKELY))
    return kept


def _lattice(differences: Sequence[float], sigma: float) -> tuple[int, int, float]:
    """The lowest and the highest level as multiples of the step, and the step; 0 is one of them."""
    clipped = [min(max(each, -LARGEST_DROP), LARGEST_DROP) for each in (*differences, 0.0)]
    margin = max(_MARGIN_SIGMAS * sigma, _MARGIN)
    lowest, highest = min(clipped) - margin, max(clipped) + margin
    step = max(sigma / _LEVELS_A_SIGMA, (highest - lowest) / _MOST_LEVELS)
    rounded = step * _ROUNDED
    return math.floor(lowest / rounded) * _ROUNDED, math.ceil(highest / rounded) * _ROUNDED, step


def _fit(differences: tuple[float, ...], sigma: float, lattice: tuple[int, int, float]) -> Array:
    """Log likelihood of one build's pairs, by noise factor and level."""
    low, high, _ = lattice
    fit: Array = np.zeros((len(FACTORS), high - low + 1))
    # A further pair leaves most parts as they are.
    for start in range(0, len(differences), _PART):
        fit += _fit_part(differences[start : start + _PART], sigma, lattice)
    return fit


@lru_cache(maxsize=512)
def _fit_part(differences: tuple[float, ...], sigma: float, lattice: tuple[int, int, float]) -> Array:
    low, high, step = lattice
    offsets: Array = np.arange(low, high + 1, dtype=np.float64) * step
    # A change beyond the largest counts as the largest, as in evalue().
    data = np.clip(differences, -LARGEST_DROP, LARGEST_DROP)
    fit: Array = log_likelihood(data, offsets, sigma) - LOG_FACTOR_WEIGHTS[:, None]
    return fit


@dataclass(frozen=True, eq=False)
class _Sizes:
    """The prior of the sizes of changes on a lattice of levels: log-uniform from 0.4 to 20%, mostly drops."""

    # Log prior of the level after a first change.
    log_first: Array
    # The prior of the second change, by level after it (rows), and by kind and level before it (columns). It is 0 where
    # a kind does not apply. The kinds are: any; the first change is the largest drop; the second is; the first is about
    # as large as the largest (AS_LARGE); the second is; the level after both is below 0.
    second: Array

    @staticmethod
    @lru_cache(maxsize=16)
    def of(lattice: tuple[int, int, float]) -> _Sizes:
        low, high, step = lattice
        numbers = np.arange(low, high + 1)
        steps = np.arange(1, max(2, math.floor(LARGEST_DROP / step) + 1)) * step
        all_sizes = (1 / steps[steps >= min(SMALLEST_DROP, steps[-1])]).sum()
        jumps = np.arange(low - high, high - low + 1) * step
        with np.errstate(divide="ignore"):
            prior = np.where(np.abs(jumps) >= min(SMALLEST_DROP, steps[-1]), 1 / np.abs(jumps) / all_sizes, 0.0)
            prior *= np.where(jumps > 0, GAIN, 1 - GAIN)
            log_first = np.log(prior[numbers + (high - low)])
        drop, other = -numbers[:, None] * step, (numbers[:, None] - numbers) * step
        second = prior[numbers - numbers[:, None] + (high - low)]
        is_first = (drop > 0) & (drop >= other)
        is_second = (other > 0) & (other > drop)
        first_will_do = (drop > 0) & (drop >= AS_LARGE * other)
        second_will_do = (other > 0) & (other >= AS_LARGE * drop)
        ends_slower = np.broadcast_to(numbers < 0, second.shape)
        kinds = (is_first, is_second, first_will_do, second_will_do, ends_slower)
        every = np.concatenate([second, *(second * kind for kind in kinds)])
        return _Sizes(log_first, np.ascontiguousarray(every.T))


def _by_build(tables: _Tables, by_gap: Array) -> tuple[float, ...]:
    """Divides a gap's probability among its builds by the prior, because nothing was measured between them."""
    positions = np.diff(tables.cumulative, prepend=0.0)
    for gap, (start, end) in enumerate(zip(tables.edges, tables.edges[1:], strict=False)):
        share = tables.prior[gap]
        positions[start + 1 : end + 1] *= by_gap[gap] / share if share > 0 else 0.0
    return tuple(map(float, positions))


def _outlook(
    tables: _Tables,
    none: Array,
    one: Array,
    places: tuple[Indices, Indices],
    double: _Double,
    total: float,
) -> Outlook:
    count = len(tables.prior)
    factors = none + one.sum(axis=(0, 2)) + double.by_factor
    scale = math.exp(float((factors * np.log(tables.factors)).sum() / factors.sum()))
    flat = np.exp(tables.after - tables.after.max(axis=2, keepdims=True))[:, int(factors.argmax())]
    end, end_spread = _moments(flat, tables.levels)
    single, single_spread = _moments(one.sum(axis=1), tables.levels)
    every, is_first, is_second = double.shares[:3]
    kept = np.argsort(-every, kind="stable")[:_MOST_DOUBLE]
    kept = kept[every[kept] > _NEGLIGIBLE * total]
    at, to = (place[kept] for place in places)
    by_level = (double.between[kept] * double.second[to]).sum(axis=1)
    between, between_spread = _moments(by_level, tables.levels)
    alone, zero, never = np.arange(count), np.zeros(1), np.array([count])
    neither = every - is_first - is_second
    shares = (is_first[kept], is_second[kept], neither[kept])
    # If the only change is a gain, there is no drop. That is so rare that its level needs no case of its own.
    return Outlook(
        weights=np.concatenate([[none.sum()], one.sum(axis=(1, 2)), *shares]) / total,
        targets=np.concatenate([never, alone, at, to, np.full(len(kept), count)]),
        first=np.concatenate([never, alone, at, at, at]),
        second=np.concatenate([never, np.full(count, count), to, to, to]),
        means=_columns([zero, single, *[between] * 3], [zero, np.zeros(count), *[end[to]] * 3]),
        spreads=_columns([zero, single_spread, *[between_spread] * 3], [zero, np.zeros(count), *[end_spread[to]] * 3]),
        scale=scale,
        cumulative=tables.cumulative,
        edges=tables.edges,
    )


def _columns(between: Sequence[Array], after: Sequence[Array]) -> Array:
    one, other = np.concatenate(between), np.concatenate(after)
    return np.stack([np.zeros(len(one)), one, other], axis=1)


def _moments(weights: Array, levels: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of the levels, by row."""
    total = np.maximum(weights.sum(axis=1), 1e-300)
    mean = (weights * levels).sum(axis=1) / total
    variance = (weights * (levels - mean[:, None]) ** 2).sum(axis=1) / total
    return mean, np.sqrt(variance)


def two_sizes(outlook: Outlook, gap: int) -> tuple[tuple[float, float], tuple[float, float]] | None:
    """Mean and standard deviation of each of two changes, the larger one in ``gap``, in log units.

    None if two changes are too improbable for that.
    """
    none = len(outlook.edges) - 1
    kept = np.flatnonzero((outlook.targets == gap) & (outlook.second < none))
    weights = outlook.weights[kept]
    if weights.sum() <= 0:
        return None
    first = outlook.means[kept, 1], outlook.spreads[kept, 1]
    second = outlook.means[kept, 2] - first[0], np.hypot(first[1], outlook.spreads[kept, 2])
    is_first = outlook.first[kept] == gap
    found = []
    for here in (is_first, ~is_first):
        mean, spread = (np.where(here, *each) for each in zip(first, second, strict=True))
        centre = float((weights * mean).sum() / weights.sum())
        variance = float((weights * (spread**2 + (mean - centre) ** 2)).sum() / weights.sum())
        found.append((centre, math.sqrt(variance)))
    return found[0], found[1]


def choose(posterior: Posterior, candidates: Sequence[int], sigma: float) -> tuple[int, float]:
    """The candidate whose next pair is expected to say most about the position, and how many bits that is."""
    outlook = posterior.outlook
    builds = _worth_asking(posterior, candidates)
    gap = np.searchsorted(np.array(outlook.edges[1:-1]), builds)
    start, end = (outlook.cumulative[np.array(outlook.edges)[gap + side]] for side in (0, 1))
    share = np.clip((outlook.cumulative[builds] - start) / np.maximum(end - start, 1e-300), 0.0, 1.0)
    # By candidate and hypothesis: how probable it is that the build has the first, and the second change.
    has_first, has_second = (
        np.where(place == gap[:, None], share[:, None], (place < gap[:, None]).astype(float))
        for place in (outlook.first, outlook.second)
    )
    parts = np.stack([1 - has_first, has_first * (1 - has_second), has_first * has_second], axis=2)
    parts *= outlook.weights[:, None]
    # The level at which a build is seen tells whether it has the change that is searched for.
    changed = np.array([False, True, True]), np.array([False, False, True])
    has_target = np.where((outlook.targets == outlook.first)[:, None], *changed)
    targets = (2 * outlook.targets[:, None] + has_target).ravel()
    densities = _densities(outlook, sigma)
    flat = parts.reshape(len(builds), -1)
    joint = np.stack([flat[:, targets == each] @ densities[targets == each] for each in np.unique(targets)], axis=1)
    bits = _entropy(joint.sum(axis=2)).sum(axis=1) + _entropy(joint.sum(axis=1)).sum(axis=1)
    bits -= _entropy(joint).sum(axis=(1, 2))
    best = int(np.argmax(bits))
    return int(builds[best]), float(bits[best])


def _worth_asking(posterior: Posterior, candidates: Sequence[int]) -> Indices:
    """The candidates in gaps that may hold the change, and at their edges; only some of them if there are many."""
    likely = [gap for gap, share in zip(posterior.gaps, posterior.in_gap, strict=True) if share > _NEGLIGIBLE]
    # The last build shows how large the drop is.
    last = len(posterior.positions) - 1
    kept = [each for each in candidates if each == last or any(start <= each <= end for start, end in likely)]
    builds: Indices = np.array(kept or list(candidates), dtype=np.int64)
    if len(builds) > _MOST_CANDIDATES:
        builds = builds[np.unique(np.linspace(0, len(builds) - 1, _MOST_CANDIDATES).round().astype(np.int64))]
    return builds


def _densities(outlook: Outlook, sigma: float) -> Array:
    """The probability of each difference (columns) by hypothesis and level (rows); each row sums to 1."""
    scale = outlook.scale * sigma
    means, spreads = outlook.means.ravel(), outlook.spreads.ravel()
    low, high = float(means.min()) - 6 * scale, float(means.max()) + 6 * scale
    differences = np.linspace(low, high, min(200, 2 * math.ceil((high - low) / scale)))
    density: Array = np.zeros((len(means), len(differences)))
    for share, width in ((1 - TAIL_SHARE, 1.0), (TAIL_SHARE, TAIL_WIDTH)):
        widths = np.hypot(spreads, width * scale)[:, None]
        density += share / widths * np.exp(-0.5 * ((differences - means[:, None]) / widths) ** 2)
    density /= density.sum(axis=1, keepdims=True)
    return density


def _entropy(shares: Array) -> Array:
    parts: Array = -shares * np.log2(np.maximum(shares, 1e-300))
    return parts
