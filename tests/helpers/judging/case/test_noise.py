"""Learning a case's noise from its nights: what drift, outliers, siblings, repeats and too few nights do to it."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from helpers.judging.case.evidence import Night, Past
from helpers.judging.case.noise import (
    KNOWN_NIGHTS,
    MOST_SCATTER,
    Noise,
    entry_scatter,
    learn,
    learn_nights,
    most_scatter,
    usual_sigma,
)

pytestmark = pytest.mark.slow

RNG_SEED = 7
# Up and down by the same amount: only their number differs.
SCATTER = [(5.0 + 0.01 * (-1) ** at,) for at in range(40)]


def series(count: int, sigma: float, *, drift: float = 0.0, seed: int = RNG_SEED) -> list[tuple[float, ...]]:
    values = np.random.default_rng(seed).normal(size=count) * sigma + drift * np.arange(count)
    return [(float(value),) for value in values]


def firsts(nights: list[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(night[0] for night in nights)


def siblings(sigma: float, count: int = 5) -> list[tuple[float, ...]]:
    return [firsts(series(40, sigma, seed=seed)) for seed in range(count)]


@pytest.mark.parametrize("sigma", [0.001, 0.005, 0.02])
def test_forty_nights_beside_siblings_tell_the_noise(sigma: float) -> None:
    noise = learn(series(40, sigma), siblings(sigma))
    assert 0.75 * sigma < noise.sigma < 1.1 * sigma
    assert noise.nights == 40
    assert noise.tau < 0.7 * sigma + 0.0008


def test_the_centre_is_the_median_of_the_newest_forty_first_runs() -> None:
    before, newest = [(5.0,)] * 10, series(40, 0.01)
    assert learn(before + newest).centre == statistics.median(firsts(newest))
    assert learn(before + newest) == learn(newest)


def test_repeats_of_a_night_leave_the_centre_alone() -> None:
    nights = series(20, 0.01)
    assert learn([(*night, 9.0, 9.0) for night in nights]).centre == learn(nights).centre


def test_slow_drift_widens_the_nights_and_not_the_runs() -> None:
    steady, drifting = (learn(series(40, 0.002, drift=drift), siblings(0.002)) for drift in (0.0, 0.0004))
    assert drifting.sigma < 1.25 * steady.sigma
    assert drifting.tau > 1.5 * steady.tau


def test_one_wild_night_in_eight_does_not_set_the_scale() -> None:
    nights = series(40, 0.002)
    wild = [(-0.5,) if at % 8 == 3 else night for at, night in enumerate(nights)]
    assert learn(wild, siblings(0.002)).sigma < 2 * learn(nights, siblings(0.002)).sigma


def test_few_nights_lean_on_the_siblings_and_many_do_not() -> None:
    few, many = (learn(series(count, 0.001), siblings(0.01)).sigma for count in (3, 40))
    assert few > 0.005
    assert many < 0.75 * few


def test_a_sibling_of_seven_nights_says_nothing() -> None:
    short, long = ([firsts(series(count, 0.0005))] for count in (7, 8))
    nights = series(3, 0.001)
    assert learn(nights, short) == learn(nights)
    assert learn(nights, long).sigma < 0.5 * learn(nights).sigma


def test_with_neither_history_nor_siblings_the_guess_is_wide() -> None:
    noise = learn([], [], [5.0])
    assert (noise.centre, noise.nights) == (5.0, 1)
    assert 0.008 < noise.sigma < 0.0094
    assert noise.tau > noise.sigma
    assert learn(series(5, 0.0005)).sigma > 0.004


def test_recorded_runs_are_one_night_before_the_others() -> None:
    noise = learn([(5.03,), (5.05,)], [], (9.0, 4.0, 5.02))
    assert (noise.centre, noise.nights) == (5.03, 3)


def test_restarts_of_one_night_narrow_the_runs() -> None:
    alike, apart = (learn([(5.0, 5.0, 5 + gap, 5 - gap, 5 + gap)] * 3) for gap in (0.0002, 0.004))
    assert alike.sigma < 0.6 * apart.sigma
    assert learn([(5.0, 4.0)] * 3) == learn([(5.0,)] * 3)


def test_unstable_nights_among_the_repeated_ones_do_not_set_the_scale() -> None:
    calm, wild = ((5.0, 5.0, 5 + gap, 5 - gap, 5 + gap) for gap in (0.004, 0.04))
    assert learn([calm] * 5 + [wild] * 2).sigma == pytest.approx(learn([calm] * 7).sigma, rel=0.01)
    assert learn([wild] * 5 + [calm] * 2).sigma > 3 * learn([calm] * 7).sigma


@pytest.mark.parametrize("count", [1, 2, 40])
def test_nights_alike_to_the_last_digit_still_have_a_spread(count: int) -> None:
    noise = learn([(5.0,)] * count, [(5.0,) * 40])
    assert noise.sigma > 5e-5
    assert noise.tau >= 0.0007


def test_a_tenth_of_the_spread_is_always_the_nights() -> None:
    # Where the runs of a night explain all of it: a tenth, what the median of 30 nights errs by, and 0.07%.
    noise = learn([(5.0, 5.0, 5.02, 4.98, 5.02, 4.98)] * 30, siblings(0.001))
    error = math.pi / 2 * noise.sigma**2 / 30
    assert noise.tau**2 == pytest.approx(0.1 * noise.sigma**2 + error + 0.0007**2)


# --- a recorded entry whose own runs lie apart


@pytest.mark.parametrize("sigma", [0.001, 0.005, 0.0094, 0.02])
def test_an_entry_as_scattered_as_a_case_usually_is_may_be_recorded(sigma: float) -> None:
    past = Past(tuple(Night(rates) for rates in series(20, sigma)), tuple(siblings(sigma)))
    rng = np.random.default_rng(3)
    for known in (past, Past()) if sigma < 0.02 else (past,):
        found = [entry_scatter(np.exp(5 + sigma * rng.normal(size=3)).tolist(), known) for _ in range(200)]
        assert max(found) < MOST_SCATTER
        assert statistics.median(found) < 1.5


def test_a_calibration_says_what_is_usual_until_the_nights_do() -> None:
    wide = (100.0, 106.0, 94.0)
    assert entry_scatter(wide, Past(calibrated=0.002)) > MOST_SCATTER > entry_scatter(wide, Past(calibrated=0.05))
    assert most_scatter(Past(calibrated=0.002)) == MOST_SCATTER < most_scatter(Past())
    quiet = tuple(Night(rates) for rates in series(20, 0.001))
    assert entry_scatter(wide, Past(quiet, calibrated=0.05)) > MOST_SCATTER


def test_what_is_usual_rests_on_the_cases_own_nights_then_on_its_siblings() -> None:
    assert usual_sigma(series(40, 0.001), siblings(0.001)) < 0.0015
    assert usual_sigma((), siblings(0.001)) < 0.0015
    assert usual_sigma() > 0.007


def test_where_a_scattered_entry_stands_is_as_badly_known_as_its_runs_say() -> None:
    wide, narrow = (learn((), (), tuple(map(math.log, rates))) for rates in ((2.652, 1.691), (2.13, 2.11)))
    assert wide.scatter > MOST_SCATTER and narrow.scatter < 1.2
    assert wide.tau > 0.05 > 0.02 > narrow.tau
    later = learn(series(KNOWN_NIGHTS, 0.005), (), tuple(map(math.log, (2.652, 1.691))))
    assert later.tau < wide.tau / 3


def test_in_a_pool_the_next_night_may_lie_further_off_than_the_nodes_do_the_more_so_the_fewer_they_are() -> None:
    def pool(nodes: int) -> Noise:
        nights = [Night(rates, node=f"n{at % nodes}") for at, rates in enumerate(series(40, 0.0005))]
        return learn_nights(nights, Past(pool=True), ())

    two, twenty = pool(2), pool(20)
    assert (two.nodes, twenty.nodes) == (2, 20)
    assert two.tau > 1.2 * two.node_spread
    assert twenty.node_spread < two.node_spread
