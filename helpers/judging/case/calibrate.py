"""What A/A runs of one case say about its noise: how far runs and nights scatter, and which tolerance that allows.
Pure.

Log rates throughout: a standard deviation of 0.01 is 1% of the throughput.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from helpers.judging.case.evidence import Budget, Build, Evidence, Past, RunEvidence
from helpers.judging.case.judge import end_without_comparison, failed_run, no_median_step
from helpers.judging.case.noise import learn
from helpers.judging.case.verdict import NeedRuns, Reason, Status, Verdict
from helpers.judging.finding import Code, Finding, found
from helpers.judging.statistics import NORMAL_95
from helpers.trainers.contract.errors import SuiteError

# Fewer degrees of freedom leave sigma's upper bound more than six times its value.
LEAST_RUNS = 4
# At most one in a hundred series of independent runs looks like a drift.
_NORMAL_ONE_SIDED_99 = 2.326
# Tolerances are written to a tenth of a percent.
_TOLERANCE_STEP = 0.001
_ROUNDING = 1e-9
_PAIRS = (2, 3, 4, 6, 8, 12, 16, 24)
_LEAST_SIGMA = 1e-4
# With 7 degrees of freedom sigma's bounds are a factor of 3 apart.
_FEW_DEGREES = 7


@dataclass(frozen=True)
class Deviation:
    """A standard deviation of log rates, with its 95% interval."""

    value: float
    low: float
    high: float
    degrees_of_freedom: int


@dataclass(frozen=True)
class CaseNoise:
    """One case's noise on this machine, from A/A runs of one build."""

    case_id: str
    target: str
    log_rates: tuple[float, ...]
    # Between runs.
    run: Deviation
    # Between nights; None until two nights of the segment are known.
    night: Deviation | None
    # From how many nights that was computed; tonight's runs count as one.
    nights: int
    # The effect threshold in use, and the finest one that the noise allows, as fractions.
    tolerance: float
    recommended: float
    # A number of interleaved pairs, and the smallest drop, as a fraction, that they find with 80% power if a verdict
    # needs the e-value ``threshold``.
    by_pairs: tuple[tuple[int, float], ...]
    # The smallest drop that a night finds which screens first.
    night_drop: float
    threshold: float
    warnings: tuple[Finding, ...] = ()


def noise_of(
    runs: Sequence[RunEvidence],
    past: Past,
    budget: Budget,
    *,
    case_id: str,
    target: str,
    tolerance: float,
    least: float,
) -> CaseNoise:
    """The noise by the usable A/A ``runs`` and by the nights of the segment that history knows.

    ``tolerance`` is the one in use, ``least`` the finest that is ever recommended. Raises SuiteError for so few runs
    that no degree of freedom is left.
    """
    # Imported here because they load numpy, which takes longer than most commands take to answer.
    from helpers.judging.case.confirm import THRESHOLD
    from helpers.judging.case.power import Detection, smallest_drop

    rates = tuple(run.log_rate for run in runs if run.log_rate is not None)
    run = deviation_of_runs(rates)
    before = [night.log_rates for night in past.nights if night.accepted and night.log_rates]
    recommended = recommended_tolerance(run.value, budget.pairs, least)
    how = Detection(
        sigma=max(run.value, _LEAST_SIGMA),
        tau=learn([*before, rates], past.siblings).tau,
        runs=1,
        most_runs=budget.screen_runs,
        pairs=budget.pairs,
        threshold=THRESHOLD,
        tolerance=tolerance,
    )
    pairs = (*(n for n in _PAIRS if n < budget.pairs), budget.pairs)
    return CaseNoise(
        case_id=case_id,
        target=target,
        log_rates=rates,
        run=run,
        night=deviation_of_nights([*before, rates], run),
        nights=len(before) + 1,
        tolerance=tolerance,
        recommended=recommended,
        by_pairs=tuple((n, smallest_drop(replace(how, pairs=n, screened=False))) for n in pairs),
        night_drop=smallest_drop(how),
        threshold=THRESHOLD,
        warnings=tuple(_warnings(rates, run, tolerance, recommended, budget.pairs)),
    )


def _warnings(
    rates: Sequence[float], run: Deviation, tolerance: float, recommended: float, pairs: int
) -> Iterator[Finding]:
    if tolerance < recommended - _ROUNDING:
        yield found(Code.TOLERANCE_TOO_FINE, tolerance=tolerance, noise=recommended, pairs=pairs)
    if run.degrees_of_freedom < _FEW_DEGREES:
        yield found(Code.NOISE_UNCERTAIN, runs=len(rates), low=run.low, high=run.high)
    if run.value < _LEAST_SIGMA:
        yield found(Code.RUNS_EQUAL)
    if drifts(rates):
        yield found(Code.RUNS_DRIFT)


def calibrating(runs: int) -> Callable[[Evidence], Verdict | NeedRuns]:
    """A judge that asks for ``runs`` usable runs and compares them with nothing.

    It ends at a refused or failed run, and where more runs in a row are invalid than the budget repeats.
    """

    def judge(evidence: Evidence) -> Verdict | NeedRuns:
        failure = [failed_run(run.failure) for run in evidence.runs if run.failure is not None][:1]
        if (ended := end_without_comparison(evidence, failure) or no_median_step(evidence)) is not None:
            return ended
        usable = sum(run.usable for run in evidence.runs)
        if usable >= runs:
            return Verdict(Status.PASS, Reason.of(found(Code.CALIBRATED, runs=usable)))
        why = found(Code.CALIBRATION_RUN, run=usable + 1, most=runs)
        return NeedRuns((Build.CANDIDATE,) * (runs - usable), why)

    return judge


def deviation_of_runs(rates: Sequence[float]) -> Deviation:
    """The standard deviation of runs about their mean, with the chi-square interval; SuiteError for fewer than two."""
    if len(rates) < 2:
        raise SuiteError(
            "calibration", field="runs", got=len(rates), expected="2 or more of one build", remedy="Raise --runs"
        )
    return _deviation(statistics.variance(rates), len(rates) - 1, 0.0)


def deviation_of_nights(nights: Sequence[Sequence[float]], run: Deviation) -> Deviation | None:
    """The standard deviation of the nights' own effects: how much their means scatter beyond what their runs explain.

    The interval is the chi-square one of the means' variance less the runs' part. None for fewer than two nights.
    """
    means = [statistics.fmean(night) for night in nights if night]
    if len(means) < 2:
        return None
    own = run.value**2 * statistics.fmean(1 / len(night) for night in nights if night)
    return _deviation(statistics.variance(means), len(means) - 1, own)


def drifts(log_rates: Sequence[float]) -> bool:
    """Whether neighbouring runs are so much more alike than distant ones that the machine drifted meanwhile.

    By von Neumann's ratio (1941) of mean squared steps to variance, which for n independent runs has the mean 2 and
    the variance 4(n - 2)/(n² - 1).
    """
    n = len(log_rates)
    if n < LEAST_RUNS or (variance := statistics.variance(log_rates)) == 0:
        return False
    steps = [after - before for before, after in itertools.pairwise(log_rates)]
    least = 2 - _NORMAL_ONE_SIDED_99 * math.sqrt(4 * (n - 2) / (n**2 - 1))
    return statistics.fmean(step**2 for step in steps) / variance < least


def recommended_tolerance(sigma_run: float, pairs: int, least: float) -> float:
    """The finest effect threshold that ``pairs`` interleaved pairs support, rounded up to 0.1%; at least ``least``.

    The estimate of a difference has the standard error √2·σ_run/√pairs. If the threshold lies below its 95% bound, two
    equal builds cross it by accident.
    """
    bound = NORMAL_95 * math.sqrt(2) * sigma_run / math.sqrt(pairs)
    return max(least, math.ceil(round(bound / _TOLERANCE_STEP, 6)) * _TOLERANCE_STEP)


def _deviation(variance: float, degrees: int, own: float) -> Deviation:
    """The standard deviation of ``variance``, which has ``degrees`` of freedom, less the variance ``own``."""
    # Imported here because it loads numpy.
    from scipy.special import gammaincinv

    # Twice this inverse is the quantile of the chi-square distribution.
    bounds = (degrees * variance / float(2 * gammaincinv(degrees / 2, share)) for share in (0.975, 0.025))
    low, high = (math.sqrt(max(0.0, bound - own)) for bound in bounds)
    return Deviation(math.sqrt(max(0.0, variance - own)), low, high, degrees)
