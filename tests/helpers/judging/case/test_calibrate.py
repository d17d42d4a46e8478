"""What A/A runs say of a case's noise: spreads with their intervals, the tolerance, the judge that asks for them."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest

from helpers.judging.case.calibrate import (
    CaseNoise,
    calibrating,
    deviation_of_nights,
    deviation_of_runs,
    drifts,
    noise_of,
    recommended_tolerance,
)
from helpers.judging.case.evidence import Budget, Evidence, Night, Past, RunEvidence
from helpers.judging.case.verdict import Status, Verdict
from helpers.trainers.contract.errors import SuiteError

pytestmark = pytest.mark.slow


def gaussian(count: int, sigma: float, seed: int = 1, mean: float = 1.0) -> list[float]:
    source = random.Random(seed)
    return [source.gauss(mean, sigma) for _ in range(count)]


def noise(
    log_rates: Sequence[float], past: Past | None = None, tolerance: float = 0.005, budget: Budget | None = None
) -> CaseNoise:
    runs = [RunEvidence(log_rate=rate) for rate in log_rates]
    return noise_of(
        runs,
        past or Past(),
        budget or Budget(),
        case_id="c",
        target="cpu",
        tolerance=tolerance,
        least=0.005,
    )


# --- spreads


@pytest.mark.parametrize(
    ("runs", "smallest", "largest"), [(2, 0.000982069, 5.02389), (10, 2.70039, 19.0228), (101, 74.2219, 129.561)]
)
def test_the_deviation_of_runs_has_the_interval_of_the_chi_square_tables(
    runs: int, smallest: float, largest: float
) -> None:
    rates = [1.0 + 0.002 * (number % 5) for number in range(runs)]
    found, expected = deviation_of_runs(rates), statistics.stdev(rates)
    assert (found.value, found.degrees_of_freedom) == (pytest.approx(expected), runs - 1)
    bounds = (expected * math.sqrt((runs - 1) / bound) for bound in (largest, smallest))
    assert (found.low, found.high) == tuple(pytest.approx(bound, rel=1e-4) for bound in bounds)


def test_the_deviation_of_nights_is_what_runs_do_not_explain() -> None:
    source = random.Random(4)
    nights = []
    for _ in range(400):
        offset = source.gauss(0, 0.004)
        nights.append([offset + source.gauss(0, 0.002) for _ in range(3)])
    found = deviation_of_nights(nights, replace(deviation_of_runs(nights[0]), value=0.002))
    assert found is not None
    assert found.value == pytest.approx(0.004, rel=0.1)
    assert found.low < 0.004 < found.high
    assert found.degrees_of_freedom == 399


def test_what_one_night_or_one_run_cannot_tell() -> None:
    assert deviation_of_nights([[1.0, 1.1]], deviation_of_runs([1.0, 1.1])) is None
    with pytest.raises(SuiteError, match="2 or more of one build"):
        deviation_of_runs([1.0])


# --- drift


def test_a_drift_is_seen_and_chance_is_not() -> None:
    assert drifts([1.0 + 0.001 * number for number in range(10)])
    seen = sum(drifts(gaussian(10, 0.003, seed)) for seed in range(500))
    assert seen <= 10
    assert not drifts([1.0] * 10)
    assert not drifts([1.0, 1.1, 1.2])


# --- tolerances


@pytest.mark.parametrize(
    ("sigma", "pairs", "expected"), [(0.001, 16, 0.005), (0.01, 16, 0.007), (0.03, 16, 0.021), (0.03, 4, 0.042)]
)
def test_the_tolerance_is_the_95_percent_bound_of_the_pairs_rounded_up(
    sigma: float, pairs: int, expected: float
) -> None:
    found = recommended_tolerance(sigma, pairs, 0.005)
    assert found == pytest.approx(expected)
    bound = 1.96 * math.sqrt(2 * sigma**2 / pairs)
    assert found >= bound - 1e-9
    assert found == pytest.approx(0.005) or found - bound < 0.001


# --- a case's noise


def test_noise_tells_the_spread_the_drops_and_the_tolerance() -> None:
    found = noise(gaussian(10, 0.01, seed=5))
    assert (found.run.degrees_of_freedom, found.night, found.nights) == (9, None, 1)
    assert [pairs for pairs, _ in found.by_pairs] == [2, 3, 4, 6, 8, 12, 16, 24, 40]
    drops = [drop for _, drop in found.by_pairs]
    assert drops == sorted(drops, reverse=True)
    assert drops[-1] < 0.1 < drops[0]
    assert found.night_drop >= drops[-1]


def test_nights_of_the_segment_tell_the_deviation_of_nights() -> None:
    source = random.Random(3)
    before = tuple(Night((1.0 + source.gauss(0, 0.005),)) for _ in range(20))
    found = noise(gaussian(10, 0.001), Past((*before, Night((2.0,), accepted=False))))
    assert found.nights == 21
    assert found.night is not None
    assert found.night.value == pytest.approx(0.005, rel=0.4)


@pytest.mark.parametrize(
    ("log_rates", "tolerance", "told"),
    [
        (gaussian(10, 0.03, seed=6), 0.005, "tolerance-too-fine"),
        (gaussian(4, 0.003), 0.005, "noise-uncertain"),
        ([1.0 + 0.002 * number for number in range(10)], 0.05, "runs-drift"),
        ([1.0] * 10, 0.005, "runs-equal"),
    ],
)
def test_a_doubt_is_a_warning(log_rates: list[float], tolerance: float, told: str) -> None:
    assert told in (warning.code for warning in noise(log_rates, tolerance=tolerance).warnings)


# --- the judge: perfgate calibrate's tests have the rest


@pytest.mark.parametrize(
    ("run", "status"),
    [
        (RunEvidence(refusal="no bf16"), Status.NOT_RUN),
        (RunEvidence(figures={"median-step": "too short"}), Status.INFRA_ERROR),
        (RunEvidence(log_rate=0.5, invalid="throttled"), Status.INVALID),
    ],
)
def test_a_run_that_gives_nothing_and_is_not_repeated_ends_it(run: RunEvidence, status: Status) -> None:
    evidence = Evidence("c", "wall-clock", 1, (RunEvidence(log_rate=1.0), run), budget=Budget(repeats=0))
    verdict = calibrating(4)(evidence)
    assert isinstance(verdict, Verdict) and verdict.status is status
