"""The search for the first bad build: what it asks for, every way it ends, and its state as plain rows."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from helpers.judging.bisect.search import (
    BisectAnswer,
    BisectEnd,
    Bisection,
    MeasuredPair,
    Measurement,
    NeedPairs,
    Untestable,
    findings,
    next_step,
    no_drop_probability,
    smallest_range,
)
from helpers.trainers.contract.errors import SuiteError

pytestmark = pytest.mark.slow

QUIET, NOISY = 0.001, 0.01


def search(count: int = 16, sigma: float = QUIET, **values: Any) -> Bisection:
    return Bisection(tuple(f"b{place}" for place in range(count)), sigma, **values)


def levels(count: int, drops: Mapping[int, float]) -> list[float]:
    """Log rates of the builds, where each place of ``drops`` makes everything from there on slower by that fraction."""
    return [sum(math.log1p(-drop) for place, drop in drops.items() if build >= place) for build in range(count)]


class Machine:
    """Measures what a search asks for, and keeps what was asked."""

    def __init__(self, truth: list[float], noise: float = QUIET, failing: tuple[int, ...] = (), seed: int = 1) -> None:
        self.truth, self.noise, self.failing = truth, noise, failing
        self.random = random.Random(seed)
        self.asked: list[NeedPairs] = []

    def measure(self, request: NeedPairs) -> list[Measurement]:
        self.asked.append(request)
        if request.build in self.failing:
            return [Untestable(request.build, "crashes")]
        return [
            MeasuredPair(
                request.build,
                5.0 + self.random.gauss(0, self.noise),
                5.0 + self.truth[request.build] + self.random.gauss(0, self.noise),
            )
            for _ in range(request.pairs)
        ]

    def search(self, wanted: Bisection) -> tuple[BisectAnswer, list[Measurement]]:
        measured: list[Measurement] = []
        while isinstance(step := next_step(wanted, measured), NeedPairs):
            measured += self.measure(step)
        return step, measured

    @property
    def builds(self) -> list[int]:
        return [request.build for request in self.asked]


# --- what is asked for


def test_the_good_build_beside_itself_comes_first_then_the_bad_one() -> None:
    machine = Machine(levels(16, {6: 0.03}))
    machine.search(search())
    assert machine.builds[:2] == [0, 15]
    assert all(request.expected_runs is None for request in machine.asked[:2])


def test_between_the_ends_the_middle_is_asked_for_first_and_the_runs_that_are_left_are_told() -> None:
    machine = Machine(levels(16, {6: 0.03}))
    machine.search(search())
    first = machine.asked[2]
    assert first.build in (7, 8)
    assert first.expected_runs is not None
    assert 6 <= first.expected_runs <= 40


def test_a_prior_moves_what_is_asked_for_to_where_the_change_is_likely() -> None:
    prior = (0, *[1.0] * 12, 100.0, 1.0, 1.0)
    machine = Machine(levels(16, {13: 0.03}))
    answer, _ = machine.search(search(prior=prior))
    assert machine.asked[2].build in (12, 13)
    assert (answer.first, answer.last) == (13, 13)


# --- how it ends


@pytest.mark.parametrize("at", [1, 2, 9, 15])
@pytest.mark.parametrize("noise", [QUIET, NOISY])
def test_the_first_bad_build_is_found(at: int, noise: float) -> None:
    answer, measured = Machine(levels(16, {at: 0.04}), noise, seed=at).search(search(sigma=noise))
    assert (answer.end, answer.first, answer.last) == (BisectEnd.FOUND, at, at)
    assert answer.probability >= 0.99
    assert answer.runs == 2 * len(measured)
    assert answer.change is not None
    assert answer.change.low <= -0.04 <= answer.change.high
    assert not answer.unexplained
    assert answer.residual is None


@pytest.mark.parametrize("noise", [QUIET, NOISY])
def test_nothing_is_named_on_the_word_of_a_single_pair(noise: float) -> None:
    wanted = search(sigma=noise)
    answer, measured = Machine(levels(16, {6: 0.05}), noise).search(wanted)
    assert answer.first == 6
    known = findings(wanted, measured)
    assert min(known[5].pairs, known[6].pairs) >= 2


def test_one_bad_run_does_not_lead_astray() -> None:
    wanted = search()
    machine = Machine(levels(16, {12: 0.02}))
    measured: list[Measurement] = []
    while isinstance(step := next_step(wanted, measured), NeedPairs):
        more = machine.measure(step)
        # The first run of a build before the change is as slow as the change makes the others.
        if step.build not in (0, 15) and step.build < 12 and len(machine.asked) == 3:
            more = [replace(each, log_rate=each.log_rate - 0.02) for each in more if isinstance(each, MeasuredPair)]
        measured += more
    assert (step.end, step.first) == (BisectEnd.FOUND, 12)


def test_a_spent_budget_leaves_the_smallest_range() -> None:
    answer, measured = Machine(levels(64, {40: 0.02}), NOISY, seed=3).search(search(64, NOISY, budget_runs=90))
    assert answer.end is BisectEnd.BUDGET
    assert answer.first is not None
    assert answer.last is not None
    assert answer.first <= 40 <= answer.last
    assert 1 <= answer.last - answer.first < 62
    assert answer.runs == 2 * len(measured) <= 90


def test_exchanged_builds_are_told() -> None:
    answer, _ = Machine(levels(16, {6: -0.03})).search(search())
    assert (answer.end, answer.first) == (BisectEnd.FASTER, None)


def test_equally_fast_ends_leave_nothing_to_find() -> None:
    answer, _ = Machine(levels(16, {}), noise=2e-4).search(search(sigma=2e-4))
    assert (answer.end, answer.first, answer.probability) == (BisectEnd.NO_DROP, None, 0.0)


def test_ends_that_the_noise_hides_are_no_answer() -> None:
    answer, _ = Machine(levels(16, {6: 0.005}), noise=0.03).search(search(sigma=0.03, budget_runs=60))
    assert answer.end is BisectEnd.UNCONFIRMED
    assert answer.runs <= 40


def test_a_good_build_that_differs_from_itself_ends_the_search() -> None:
    pairs = [MeasuredPair(0, 5.0, 4.8), MeasuredPair(0, 5.0, 4.8)]
    step = next_step(search(), pairs)
    assert isinstance(step, BisectAnswer)
    assert step.end is BisectEnd.GOOD_DIFFERS


@pytest.mark.parametrize("end", [0, 15])
def test_an_end_that_cannot_be_tested_ends_the_search(end: int) -> None:
    step = next_step(search(), [Untestable(end, "no module named paddle", runs=2)])
    assert isinstance(step, BisectAnswer)
    assert (step.end, step.runs) == (BisectEnd.ENDS_UNTESTABLE, 2)


# --- builds that cannot be tested


def test_a_build_that_fails_is_asked_for_once_and_stepped_around() -> None:
    machine = Machine(levels(16, {6: 0.03}), failing=(7, 8))
    answer, _ = machine.search(search())
    assert (answer.end, answer.first, answer.last) == (BisectEnd.FOUND, 6, 6)
    assert machine.builds.count(8) + machine.builds.count(7) <= 2


@pytest.mark.parametrize("at", [5, 6, 7])
def test_failing_builds_that_hide_the_change_make_the_answer_a_range(at: int) -> None:
    answer, measured = Machine(levels(16, {at: 0.03}), failing=(5, 6)).search(search())
    assert (answer.end, answer.first, answer.last) == (BisectEnd.HIDDEN, 5, 7)
    assert answer.probability >= 0.99
    known = findings(search(), measured)
    assert known[5].untestable == "crashes"
    assert known[5].level is None
    assert known[7].level is not None


def test_a_failing_build_is_named_where_the_prior_leaves_no_other() -> None:
    prior = (*[1.0] * 6, 1.0, 0.0, *[1.0] * 8)
    answer, _ = Machine(levels(16, {6: 0.03}), failing=(6,)).search(search(prior=prior))
    assert (answer.end, answer.first, answer.last) == (BisectEnd.FOUND, 6, 6)


def test_the_attempts_at_failing_builds_count_as_runs() -> None:
    answer, measured = Machine(levels(16, {6: 0.03}), failing=(7, 8)).search(search())
    failed = sum(isinstance(each, Untestable) for each in measured)
    assert failed
    assert answer.runs == 2 * (len(measured) - failed) + failed


# --- several changes


@pytest.mark.parametrize("places", [(4, 11), (11, 4), (7, 8)])
def test_the_larger_of_two_changes_is_found_and_the_rest_is_told(places: tuple[int, int]) -> None:
    larger, smaller = places
    answer, _ = Machine(levels(16, {larger: 0.05, smaller: 0.02})).search(search())
    assert (answer.end, answer.first, answer.last) == (BisectEnd.FOUND, larger, larger)
    assert answer.unexplained
    assert answer.change is not None
    assert answer.residual is not None
    assert answer.change.low <= -0.05 <= answer.change.high
    assert answer.residual.low <= -0.02 <= answer.residual.high


def test_a_gain_on_the_way_does_not_hide_the_drop() -> None:
    answer, _ = Machine(levels(16, {4: 0.05, 11: -0.02})).search(search())
    assert (answer.end, answer.first) == (BisectEnd.FOUND, 4)
    assert answer.residual is not None
    assert answer.residual.point > 0


# --- what is known of each build


def test_the_probabilities_of_all_builds_and_of_no_drop_sum_to_1() -> None:
    wanted = search()
    _, measured = Machine(levels(16, {6: 0.02}), NOISY).search(search(sigma=NOISY, budget_runs=60))
    for part in range(len(measured)):
        known = findings(wanted, measured[:part])
        total = sum(each.probability for each in known) + no_drop_probability(wanted, measured[:part])
        assert total == pytest.approx(1)
        assert known[0].probability == 0


def test_before_anything_is_measured_every_build_is_as_likely_as_the_prior_has_it() -> None:
    known = findings(search(5, prior=(9.0, 1.0, 1.0, 2.0, 0.0)), [])
    shares = [each.probability for each in known]
    assert [each / shares[1] for each in shares] == pytest.approx([0, 1, 1, 2, 0])
    assert [each.name for each in known] == ["b0", "b1", "b2", "b3", "b4"]
    assert all(each.level is None and each.pairs == 0 for each in known)


# --- what is refused


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Bisection(("a",), 0.01), "got '1 build', expected a good build and a later bad one"),
        (lambda: Bisection(("a", "a"), 0.01), "nothing can have changed between a build and itself"),
        (lambda: Bisection(("a", "b", "c", "b"), 0.01), "b as build 2 and as build 4 of the list"),
        (lambda: search(sigma=0.0), "expected a standard deviation above 0"),
        (lambda: search(sigma=math.nan), "expected a standard deviation above 0"),
        (lambda: search(budget_runs=1), "a budget of 1 runs"),
        (lambda: search(prior=(1.0,)), "got '1 weights', expected one for each of the 16 builds"),
        (lambda: search(3, prior=(1.0, -1.0, 2.0)), "expected weights of 0 or more, not all 0"),
        (lambda: search(3, prior=(1.0, 0.0, 0.0)), "expected weights of 0 or more, not all 0"),
    ],
)
def test_a_list_that_cannot_be_searched_is_refused(make: Callable[[], Bisection], text: str) -> None:
    with pytest.raises(SuiteError) as error:
        make()
    assert text in str(error.value).replace('"', "'")


@pytest.mark.parametrize("measured", [MeasuredPair(16, 1.0, 1.0), Untestable(-1, "x"), MeasuredPair(3, 1.0, math.nan)])
def test_a_measurement_that_is_none_is_refused(measured: Measurement) -> None:
    with pytest.raises(SuiteError, match="bisect"):
        next_step(search(), [measured])


@pytest.mark.parametrize(
    ("shares", "wanted", "found"),
    [
        ([0.0, 1.0, 0.0], 0.99, (1, 1, 1.0)),
        ([0.1, 0.4, 0.5, 0.0], 0.9, (1, 2, 0.9)),
        ([0.25, 0.25, 0.25, 0.25], 0.5, (0, 1, 0.5)),
        ([0.3, 0.2, 0.2, 0.3], 0.99, (0, 3, 1.0)),
        ([0.2, 0.3, 0.1], 0.99, (0, 2, 0.6)),
        ([0.5, 0.0, 0.5], 0.5, (0, 0, 0.5)),
    ],
)
def test_the_smallest_range(shares: list[float], wanted: float, found: tuple[int, int, float]) -> None:
    assert smallest_range(shares, wanted) == pytest.approx(found)
