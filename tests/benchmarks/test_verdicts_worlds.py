"""The synthetic nights are what docs/verdicts.md describes, and the same whoever asks for them."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest

from benchmarks.verdict_session import Machine
from benchmarks.verdict_worlds import (
    BURN_IN_NIGHTS,
    CASES,
    GAIN_NIGHT,
    LARGEST_GAIN,
    RUN_CV,
    SMALLEST_GAIN,
    At,
    LeftBehind,
    Synthetic,
    drawn_run,
)
from helpers.judging.evidence import Build
from helpers.judging.statistics import summarise
from helpers.plan.case_plan import recorded_reference

SLOW = 7
ONE_CARD, MANY_CARDS = 0, 4


@pytest.fixture(scope="module")
def world() -> Synthetic:
    return Synthetic(1, 0, frozenset({SLOW}))


def rates(world: Synthetic, at: At, case: int, build: Build, count: int = 60) -> list[float]:
    return [world.run(at, case, build, number).log_rate for number in range(count)]


def test_the_matrix_is_two_models_two_precisions_three_batches_and_five_numbers_of_cards() -> None:
    assert len({case.id for case in CASES}) == 60
    assert {case.cards for case in CASES} == set(RUN_CV)
    assert CASES[ONE_CARD].cards == 1
    assert CASES[MANY_CARDS].cards == 32


def test_a_run_is_the_same_in_whatever_order_it_is_asked_for() -> None:
    at = At(3, BURN_IN_NIGHTS + 2)
    late = Synthetic(1, 0).run(at, 5, Build.CANDIDATE, 1)
    other = Synthetic(1, 0)
    other.run(At(0, 4), 5, Build.CANDIDATE, 0)
    assert other.run(at, 5, Build.CANDIDATE, 1) == late


def test_runs_differ_by_world_night_future_case_build_and_number(world: Synthetic) -> None:
    at = At(1, BURN_IN_NIGHTS)
    asked = [
        (world, at, 0, Build.CANDIDATE, 0),
        (world, at, 0, Build.CANDIDATE, 1),
        (world, at, 0, Build.REFERENCE, 0),
        (world, at, 1, Build.CANDIDATE, 0),
        (world, At(2, BURN_IN_NIGHTS), 0, Build.CANDIDATE, 0),
        (world, At(0, 0), 0, Build.CANDIDATE, 0),
        (Synthetic(1, 1), at, 0, Build.CANDIDATE, 0),
    ]
    drawn = [where.run(*what).log_rate for where, *what in asked]
    assert len(set(drawn)) == len(asked)


def test_more_cards_scatter_more_by_about_what_dlperf_measured() -> None:
    spread = [np.median([Synthetic(1, number).run_sd[case] for number in range(40)]) for case in range(5)]
    assert spread == pytest.approx(list(RUN_CV.values()), rel=0.15)


def test_runs_of_a_night_scatter_as_much_as_the_machine_says(world: Synthetic) -> None:
    at = next(At(0, night) for night in range(40) if not world.weather(At(0, night)).unstable[MANY_CARDS])
    drawn = rates(world, at, MANY_CARDS, Build.CANDIDATE, 200)
    middle = statistics.median(drawn)
    spread = 1.4826 * statistics.median(abs(rate - middle) for rate in drawn)
    assert spread == pytest.approx(world.run_sd[MANY_CARDS], rel=0.25)


def test_an_unstable_night_scatters_about_four_times_as_much(world: Synthetic) -> None:
    calm, unstable = (
        next(At(0, night) for night in range(40) if world.weather(At(0, night)).unstable[case] == wanted)
        for case, wanted in ((MANY_CARDS, False), (MANY_CARDS, True))
    )
    factor = statistics.stdev(rates(world, unstable, MANY_CARDS, Build.CANDIDATE)) / statistics.stdev(
        rates(world, calm, MANY_CARDS, Build.CANDIDATE)
    )
    assert 2.5 < factor < 6


@pytest.mark.slow
def test_spells_and_slow_nights_are_as_rare_as_they_should_be() -> None:
    weathers = [Synthetic(1, number).weather(At(0, night)) for number in range(30) for night in range(BURN_IN_NIGHTS)]
    assert np.mean([weather.unstable.mean() for weather in weathers]) == pytest.approx(0.05, rel=0.2)
    assert np.mean([weather.slow for weather in weathers]) == pytest.approx(0.01, abs=0.006)
    assert np.std([weather.drift for weather in weathers]) == pytest.approx(0.002, rel=0.3)


def test_a_night_is_the_same_for_both_builds(world: Synthetic) -> None:
    """What A/B rests on: the night's offset cancels."""
    for night in (0, 13):
        new, good = (
            statistics.fmean(rates(world, At(0, night), ONE_CARD, build))
            for build in (Build.CANDIDATE, Build.REFERENCE)
        )
        assert new == pytest.approx(good, abs=0.002)


def test_a_slow_machine_is_slow_on_the_first_fresh_night_with_both_builds(world: Synthetic) -> None:
    first, second = (world.weather(At(SLOW, BURN_IN_NIGHTS + more)) for more in (0, 1))
    assert first.slow
    assert not second.slow
    slow = statistics.median(rates(world, At(SLOW, BURN_IN_NIGHTS), ONE_CARD, Build.REFERENCE, 20))
    after = statistics.median(rates(world, At(SLOW, BURN_IN_NIGHTS + 1), ONE_CARD, Build.REFERENCE, 20))
    assert slow < after - 0.003


def test_futures_go_on_from_the_night_they_share(world: Synthetic) -> None:
    last = world.weather(At(0, BURN_IN_NIGHTS - 1))
    futures = [world.weather(At(branch, BURN_IN_NIGHTS)) for branch in range(1, 60)]
    assert len({weather.drift for weather in futures}) == len(futures)
    stays = np.array([weather.unstable[last.unstable].mean() for weather in futures if last.unstable.any()])
    assert stays.size == 0 or stays.mean() > 0.5


def test_a_slower_run_has_a_lower_rate_and_longer_steps() -> None:
    run = drawn_run(np.array([0.1, 0.1, 0.4]))
    slower = run.slowed(0.02)
    assert slower.log_rate - run.log_rate == pytest.approx(math.log(0.98))
    assert slower.log_mean_rate - run.log_mean_rate == pytest.approx(math.log(0.98))
    assert slower.step_seconds == pytest.approx([seconds / 0.98 for seconds in run.step_seconds])
    assert run.slowed(0.0) is run
    assert run.log_rate == pytest.approx(math.log(10))
    assert run.log_mean_rate == pytest.approx(math.log(5))


# --- worlds in which the good build is left behind

WHOLE = Synthetic(3, 0)
BEHIND = LeftBehind(WHOLE, 3)


def ahead(case: int, night: int, build: Build = Build.CANDIDATE) -> float:
    """By how much a run is faster than without the gain, as a fraction."""
    at = At(0, night)
    return math.expm1(BEHIND.run(at, case, build, 0).log_rate - WHOLE.run(at, case, build, 0).log_rate)


def test_gains_are_between_1_and_8_percent_and_of_each_world_its_own() -> None:
    assert len(BEHIND.gains) == len(WHOLE.cases)
    assert SMALLEST_GAIN <= min(BEHIND.gains) < 0.02
    assert 0.06 < max(BEHIND.gains) <= LARGEST_GAIN
    assert LeftBehind(WHOLE, 3).gains == BEHIND.gains
    assert LeftBehind(WHOLE, 3, world=1).gains != BEHIND.gains


@pytest.mark.parametrize("case", [0, 1])
def test_the_build_under_test_is_faster_from_the_start_or_from_a_night_on(case: int) -> None:
    gain = BEHIND.gains[case]
    before = gain if case in BEHIND.recorded_faster else 0.0
    assert ahead(case, GAIN_NIGHT - 1) == pytest.approx(before, abs=1e-9)
    assert ahead(case, GAIN_NIGHT) == pytest.approx(gain, abs=1e-9)
    assert ahead(case, 40, Build.REFERENCE) == 0.0


def test_the_entry_is_of_the_faster_build_where_that_one_was_recorded() -> None:
    machine = Machine.of(BEHIND, recorded_faster=BEHIND.recorded_faster)
    for case in (0, 1):
        faster = case in BEHIND.recorded_faster
        plan = machine.plans[case]
        build = Build.CANDIDATE if faster else Build.REFERENCE
        rates = [math.exp(BEHIND.run(At(0, 0), case, build, 1000 + number).log_rate) for number in range(7)]
        assert plan.recorded is not None
        assert plan.recorded.samples_per_s == summarise(tuple(rates)).centre
        reference = recorded_reference(plan, {})
        assert reference is not None
        assert (reference.build == plan.reference_id) is not faster
