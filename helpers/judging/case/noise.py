"""What earlier nights say about a case: its level and its noise (docs/verdicts.md, "What earlier nights teach").

In a pool of equal nodes each night is compared with the nights of its own node, and the spread between nodes is
learned.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from helpers.judging.case.evidence import Night, Past
from helpers.judging.statistics import SIGMA_PER_MAD, robust_sigma

# An entry with a larger entry_scatter() has runs that scatter far more than is usual for the case (docs/verdicts.md,
# "The minimum detectable drop"). With an unknown usual scatter, 3 honest runs reach 4 in 4% of entries and 6 in 1%, if
# they are drawn as the e-value expects of an unknown spread.
MOST_SCATTER, MOST_SCATTER_UNKNOWN = 4.0, 6.0
# So many nights make a history. With fewer nights other rules apply (docs/verdicts.md, "The first nights").
KNOWN_NIGHTS = 15
NEWEST_NIGHTS = 40
# The variance of a median divided by that of a mean, for a normal distribution.
_MEDIAN_COST = math.pi / 2
# A scale from the median absolute deviation is as exact as one from 0.37 of the sample.
_MAD_WORTH = 0.37
_PSEUDO_DEGREES = 8.0
# With fewer nights of several runs, no night is in the middle.
_TYPICAL_NIGHTS = 3
# For a case without a history and without siblings: the upper quartile of DLPerf's 34 configurations. It is a guess, so
# the case's own nights outweigh it sooner than they outweigh siblings.
_UNKNOWN_SIGMA, _GUESS_DEGREES = 0.0094, 2.0
# From this many nights on a sibling's scale counts.
_SIBLING_NIGHTS = 8
# docs/verdicts.md, "What earlier nights teach": the night effect is taken for 0.4 of the spread between runs.
_WITHIN_SHARE = 1 / (1 + 0.4**2)
_LEAST_NIGHT_SHARE = 0.10
_LEAST_TAU = 0.0007
# No training run repeats to 0.01%. With a smaller sigma, after a few equal figures every other figure would look like a
# drop.
_LEAST_SIGMA = 1e-4
# Two machines with cards of one model differ by 8% on average. This is expected of nodes that were not measured, and
# weighs as much as one measured node (docs/verdicts.md, "How much speeds vary").
UNKNOWN_SPREAD, _PSEUDO_NODES = 0.08, 1.0
# Nodes do not agree to 0.01%. Without any spread the first new node would look like a drop.
_LEAST_SPREAD = 1e-4


@dataclass(frozen=True)
class Noise:
    """How one case's log rates vary."""

    # The median of the nights' first runs.
    centre: float
    # Standard deviation between the runs of one night.
    sigma: float
    # The standard deviation of a night's offset from ``centre``: the night effect, and the uncertainty of the centre.
    tau: float
    # From how many accepted nights all of this was learned.
    nights: int
    # How many times ``sigma`` the recorded entry's runs scatter, if the entry is one of the nights and its runs scatter
    # more than usual; else 1.
    scatter: float = 1.0
    # In a pool, from how many of its nodes it was learned (else 0), and the standard deviation between nodes, which is
    # part of ``tau``.
    nodes: int = 0
    node_spread: float = 0.0


def learn(
    nights: Sequence[Sequence[float]],
    siblings: Sequence[Sequence[float]] = (),
    recorded: Sequence[float] = (),
) -> Noise:
    """The noise from the log rates of the accepted nights, oldest night first and first run first.

    ``siblings`` are the first log rates of cases with as many cards, ``recorded`` the log rates of the recorded
    entry, which count as one night before the others. There must be at least one night or one recorded run.
    """
    return _learn(
        tuple(tuple(night) for night in nights[-NEWEST_NIGHTS:]),
        tuple(tuple(series[-NEWEST_NIGHTS:]) for series in siblings),
        tuple(recorded),
    )


@lru_cache(maxsize=1024)
def _learn(
    nights: tuple[tuple[float, ...], ...], siblings: tuple[tuple[float, ...], ...], recorded: tuple[float, ...]
) -> Noise:
    firsts = tuple(night[0] for night in nights)
    if recorded:
        firsts = (statistics.median(recorded), *firsts)
    # A night has further runs because of its first run, so the first run would exaggerate the spread between runs.
    repeats = [night[1:] for night in nights if len(night) > 2] + ([recorded] if len(recorded) > 1 else [])
    within, within_degrees = _typical_variance(repeats)
    expected, pseudo = _expected_variance(siblings, known=len(nights) >= KNOWN_NIGHTS)
    expected = _blend(expected, pseudo, within / _WITHIN_SHARE, within_degrees)
    own_degrees = _MAD_WORTH * (len(firsts) - 1)
    total = _blend(expected, pseudo, _step_scale(firsts) ** 2, own_degrees)
    # Machines drift, so a night lies further from the centre than from the night before it.
    about = _blend(total, pseudo, robust_sigma(firsts) ** 2, own_degrees)
    run_part = _blend(_WITHIN_SHARE * total, _PSEUDO_DEGREES, within, within_degrees)
    rest = max(max(total, about) - run_part, _LEAST_NIGHT_SHARE * total)
    error = _MEDIAN_COST * total / len(firsts)
    sigma = math.sqrt(min(run_part, total))
    scatter = max(1.0, _factor(recorded, sigma))
    # If the runs of the entry lie far apart, its level is as uncertain as they are.
    entry_error = _MEDIAN_COST * (scatter**2 - 1) * sigma**2 / max(len(recorded), 1) / len(firsts) ** 2
    return Noise(
        centre=statistics.median(firsts),
        sigma=sigma,
        tau=math.sqrt(rest + error + entry_error + _LEAST_TAU**2),
        nights=len(firsts),
        scatter=scatter,
    )


def usual_sigma(nights: Sequence[Sequence[float]] = (), siblings: Sequence[Sequence[float]] = ()) -> float:
    """The standard deviation between the runs of a night that is expected before any recorded run is known."""
    if nights:
        return learn(nights, siblings).sigma
    expected, _ = _expected_variance(tuple(tuple(series[-NEWEST_NIGHTS:]) for series in siblings), known=False)
    return math.sqrt(_WITHIN_SHARE * expected)


def entry_scatter(samples_per_s: Sequence[float], past: Past) -> float:
    """How many times more than usual for the case the runs of an entry scatter: from 1 (also for one run) to 11.

    The usual scatter comes from the case's own nights, else its calibration, else the cases with as many cards, else a
    guess.
    """
    return _factor(tuple(math.log(rate) for rate in samples_per_s), _usual(past))


def _usual(past: Past) -> float:
    nights = _accepted(past)
    if past.calibrated and len(nights) < _SIBLING_NIGHTS:
        return past.calibrated
    return usual_sigma(nights, past.siblings)


def pair_scatter(differences: Sequence[float], past: Past) -> float:
    """The same of the pairs with which an entry is recorded: ``differences`` of the log rates of two builds' runs."""
    return _factor(tuple(differences), math.sqrt(2) * _usual(past))


def most_scatter(past: Past) -> float:
    """The entry_scatter() and the pair_scatter() beyond which an entry is refused without a reason."""
    series = [_accepted(past), *past.siblings]
    known = past.calibrated > 0 or any(len(each) >= _SIBLING_NIGHTS for each in series)
    return MOST_SCATTER if known else MOST_SCATTER_UNKNOWN


def _accepted(past: Past) -> list[tuple[float, ...]]:
    return [night.log_rates for night in past.nights if night.accepted and night.log_rates]


def _factor(log_rates: tuple[float, ...], sigma: float) -> float:
    if len(log_rates) < 2:
        return 1.0
    # Imported here because it loads numpy.
    from helpers.judging.case.evalue import noise_factor

    return noise_factor(log_rates, sigma)


def _expected_variance(siblings: tuple[tuple[float, ...], ...], known: bool) -> tuple[float, float]:
    """The variance that is expected by the cases with as many cards, and for how many degrees of freedom it counts."""
    scales = [_step_scale(series) for series in siblings if len(series) >= _SIBLING_NIGHTS]
    if scales:
        return statistics.median(scales) ** 2, _PSEUDO_DEGREES
    return _UNKNOWN_SIGMA**2, _GUESS_DEGREES if known else _PSEUDO_DEGREES


@lru_cache(maxsize=8192)
def _step_scale(firsts: tuple[float, ...]) -> float:
    """The standard deviation of a series by its first differences. Slow drift and outliers do not change it."""
    steps = [after - before for before, after in itertools.pairwise(firsts)]
    # The deviation is about 0, where the differences of a series without drift lie; two nights have only one
    # difference.
    return SIGMA_PER_MAD * statistics.median(map(abs, steps)) / math.sqrt(2) if steps else 0.0


def _typical_variance(nights: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The variance between the runs of a night, and its degrees of freedom; 0 and 0 without nights.

    From three nights on it is that of the night in the middle. Nights without a clear answer have more runs, so nights
    on which a case was unstable are frequent among these, and would dominate a mean.
    """
    degrees = [len(runs) - 1 for runs in nights]
    total = sum(degrees)
    if len(nights) < _TYPICAL_NIGHTS:
        squares = (statistics.variance(runs) * own for runs, own in zip(nights, degrees, strict=True))
        return (sum(squares) / total, float(total)) if total else (0.0, 0.0)
    # Divided by Wilson and Hilferty's median of a sample's variance where the true variance is 1.
    variances = (
        statistics.variance(runs) / (1 - 2 / (9 * own)) ** 3 for runs, own in zip(nights, degrees, strict=True)
    )
    ascending = sorted(zip(variances, degrees, strict=True))
    below = itertools.accumulate(own for _, own in ascending)
    middle = next(at for at, so_many in enumerate(below) if so_many >= total / 2)
    return ascending[middle][0], total / _MEDIAN_COST


def _blend(prior: float, prior_degrees: float, own: float, own_degrees: float) -> float:
    """The mean of two variances, weighted by their degrees of freedom. It is taken of their logarithms, because an
    estimated scale is as often too large by a factor as too small by it."""
    logs = [math.log(max(each, _LEAST_SIGMA**2)) for each in (prior, own)]
    return math.exp((prior_degrees * logs[0] + own_degrees * logs[1]) / (prior_degrees + own_degrees))


def learn_nights(nights: Sequence[Night], past: Past, recorded: Sequence[float]) -> Noise:
    """The noise by the accepted ``nights`` of a case and the log rates of its ``recorded`` entry. There must be at
    least one night or run.

    In a pool a night shows how its own node varies. The next night may be of another node, so ``tau`` includes the
    spread between nodes, and how uncertain that is with the few nodes that were seen.
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
    # The entry's own node counts if there is no other.
    tau = math.sqrt(noise.tau**2 + spread**2 * (1 + 1 / max(1, len(levels))))
    return replace(noise, tau=tau, nodes=max(1, len(levels)), node_spread=spread)


def levelled(rates: Sequence[float], nodes: Sequence[str]) -> list[float]:
    """The rates as if all nodes had the level of the middle one."""
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
    """The standard deviation between nodes, from the nodes that were seen and what is expected of the others."""
    own = len(levels) - 1
    if own < 1:
        return UNKNOWN_SPREAD
    seen = max(statistics.stdev(levels), _LEAST_SPREAD)
    weighed = _PSEUDO_NODES * math.log(UNKNOWN_SPREAD) + own * math.log(seen)
    return math.exp(weighed / (_PSEUDO_NODES + own))
