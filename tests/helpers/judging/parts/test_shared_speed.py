"""Parts are compared beside the speed that the runs of a pair share, unless the builds differ in it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from helpers.judging.parts.explanation import Explanation, explain
from helpers.judging.parts.shared_speed import differences_beside, speeds_of
from helpers.judging.parts.step_parts import Amount, ComparedPart, Grain, Part, ProfiledPair, ProfiledRun
from helpers.trainers.contract.step_profile import OperatorRow, Phase, StepProfile

pytestmark = pytest.mark.slow

PAIRS, ROWS = 8, 40


def _run(random: np.random.Generator, slower: float, share: float, busy: float) -> ProfiledRun:
    """A run beside other work, which makes all of it up to some times as long. One row takes longer by ``slower``
    seconds, and all rows by ``share``."""
    machine = float(np.exp(random.normal(0.0, busy)))
    rows = []
    for number in range(ROWS):
        seconds = (0.002 + 0.0002 * number + (slower if number == 3 else 0.0)) * (1 + share)
        noise = float(np.exp(random.normal(0.0, 0.05)))
        rows.append(
            OperatorRow(
                Phase.BACKWARD, f"blocks.{number}", "conv2d_grad", "", "", "cpu", 1.0, seconds * machine * noise
            )
        )
    step = math.fsum(row.seconds_per_step for row in rows)
    return ProfiledRun(
        step, (StepProfile("paddle", 0, 5, step, step, {Phase.BACKWARD: step}, 0.0, tuple(rows), 1, ""),)
    )


def _explained(seed: int, slower: float = 0.0, share: float = 0.0, busy: float = 0.6) -> Explanation:
    random = np.random.default_rng(seed)
    return explain(
        [ProfiledPair(_run(random, 0.0, 0.0, busy), _run(random, slower, share, busy)) for _ in range(PAIRS)]
    )


def test_one_slower_part_is_found_on_a_machine_with_much_other_work() -> None:
    found = [_explained(seed, slower=0.011) for seed in range(10)]
    assert sum(bool(each.named) and each.named[0].part.layer == "blocks.3" for each in found) >= 9
    assert all(one.part.layer in ("blocks.3", "") for each in found for one in each.named)
    assert min(min(each.shared_speeds) for each in found) < 0.5


def test_the_same_build_is_rarely_said_to_differ() -> None:
    found = [_explained(seed) for seed in range(60)]
    # 5% are 3; 8 or more of 60 would be by chance in 1%.
    assert sum(bool(each.named) for each in found) < 8
    # 2% are 1; 5 or more would be by chance in 1%.
    assert sum(any(one.is_sure for one in each.named) for each in found) < 5


def test_a_build_that_is_slower_as_a_whole_is_compared_as_measured() -> None:
    found = _explained(1, share=0.2, busy=0.01)
    assert found.shared_speeds == ()
    assert found.named[0].part.level in (Grain.PHASE, Grain.OPERATOR)
    assert found.named[0].seconds.mean == pytest.approx(0.2 * found.step_seconds, rel=0.1)


@pytest.mark.parametrize(("share", "own"), [(-0.15, 0.0), (-0.15, -0.08), (0.15, 0.0), (0.6, 0.3)])
def test_six_pairs_of_a_build_that_differs_as_a_whole_name_no_part_against_what_was_measured(
    share: float, own: float
) -> None:
    """A row that is as long as before, or has changed less than all others, seems to have changed the other way beside
    their speed."""
    random = np.random.default_rng(1)

    def run(share: float, own: float) -> ProfiledRun:
        usual = _run(random, 0.0, share, 0.001)
        (profile,) = usual.profiles
        rows = tuple(
            replace(row, seconds_per_step=row.seconds_per_step * (1 + own) / (1 + share)) if number == 20 else row
            for number, row in enumerate(profile.operators)
        )
        return replace(usual, profiles=(replace(profile, operators=rows),))

    found = explain([ProfiledPair(run(0.0, 0.0), run(share, own)) for _ in range(6)])
    assert found.shared_speeds
    assert [one for one in found.named if one.seconds.mean * share < 0] == []


def test_beside_an_operator_that_takes_most_of_the_step_and_is_slower_nothing_else_seems_faster() -> None:
    named = [each for seed in range(10) for each in explain(_pairs_with_a_large_operator(seed)).named]
    assert named
    assert {(each.part.phase, each.seconds.mean > 0) for each in named} == {(Phase.BACKWARD, True)}


def _pairs_with_a_large_operator(seed: int) -> list[ProfiledPair]:
    """Pairs on a busy machine; the gradients of convolutions take 60% of a step, and 15% longer with the candidate."""
    random = np.random.default_rng(seed)

    def run(longer: float) -> ProfiledRun:
        machine = float(np.exp(random.normal(0.0, 0.3)))
        rows = tuple(
            OperatorRow(phase, f"blocks.{number}", name, "", "", "cpu", 1.0, seconds * machine * random.normal(1, 0.03))
            for number in range(8)
            for phase, name, seconds in (
                (Phase.FORWARD, "conv2d", 0.002),
                (Phase.FORWARD, "batch_norm", 0.001),
                (Phase.FORWARD, "relu", 0.001),
                (Phase.BACKWARD, "conv2d_grad", 0.006 * longer),
            )
        )
        phases = {
            phase: math.fsum(row.seconds_per_step for row in rows if row.phase is phase)
            for phase in (Phase.FORWARD, Phase.BACKWARD)
        }
        step = math.fsum(phases.values())
        return ProfiledRun(step, (StepProfile("paddle", 0, 5, step, step, phases, 0.0, rows, 1, ""),))

    return [ProfiledPair(run(1.0), run(1.15)) for _ in range(PAIRS)]


def test_exchanged_builds_have_the_opposite_differences() -> None:
    rows = [_compared(f"blocks.{number}", seed=number) for number in range(9)]
    exchanged = [ComparedPart(each.part, each.candidate, each.reference) for each in rows]
    speeds, back = speeds_of(rows), speeds_of(exchanged)
    assert speeds == pytest.approx([-each for each in back])
    ours, theirs = differences_beside(rows, speeds)[0], differences_beside(exchanged, back)[0]
    assert ours == pytest.approx([-each for each in theirs])


def _compared(layer: str, seed: int) -> ComparedPart:
    random = np.random.default_rng(seed)
    sides = [tuple(Amount(float(random.uniform(0.5, 2.0)), 1.0) for _ in range(PAIRS)) for _ in range(2)]
    return ComparedPart(Part(Grain.ROW, Phase.FORWARD, layer, "relu"), sides[0], sides[1])


def test_of_two_operators_the_larger_one_is_not_the_speed() -> None:
    one, ten, twenty = ((Amount(seconds, 1.0),) for seconds in (1.0, 10.0, 20.0))
    small = ComparedPart(Part(Grain.ROW, Phase.FORWARD, "a", "relu"), one, one)
    large = ComparedPart(Part(Grain.ROW, Phase.FORWARD, "a", "conv2d"), ten, twenty)
    assert (speeds_of([small, large]), speeds_of([large])) == ((0.0,), (math.log(2.0),))


@pytest.mark.parametrize("share", [0.5, 0.8, 0.9])
def test_an_operator_that_takes_most_of_a_step_is_not_taken_for_the_speed_of_the_machine(share: float) -> None:
    found = [explain(_pairs_with_one_large_row(seed, share)) for seed in range(10)]
    assert sum(bool(each.named) and each.named[0].part.layer == "large" for each in found) >= 9
    assert {each.seconds.mean > 0 for one in found for each in one.named} == {True}


def _pairs_with_one_large_row(seed: int, share: float) -> list[ProfiledPair]:
    """Pairs on a busy machine; one row takes ``share`` of a step, and 6% longer with the candidate."""
    random = np.random.default_rng(seed)

    def run(longer: float) -> ProfiledRun:
        machine = float(np.exp(random.normal(0.0, 0.3)))
        seconds = share * longer * machine * float(np.exp(random.normal(0.0, 0.01)))
        rows = [OperatorRow(Phase.BACKWARD, "large", "conv2d_grad", "", "", "cpu", 1.0, seconds)]
        for number in range(20):
            seconds = (1 - share) / 20 * machine * float(np.exp(random.normal(0.0, 0.03)))
            layer, name = f"blocks.{number}", f"operator{number % 5}"
            rows.append(OperatorRow(Phase.FORWARD, layer, name, "", "", "cpu", 1.0, seconds))
        phases = {
            phase: math.fsum(row.seconds_per_step for row in rows if row.phase is phase)
            for phase in (Phase.FORWARD, Phase.BACKWARD)
        }
        step = math.fsum(phases.values())
        return ProfiledRun(step, (StepProfile("paddle", 0, 5, step, step, phases, 0.0, tuple(rows), 1, ""),))

    return [ProfiledPair(run(1.0), run(1.06)) for _ in range(PAIRS)]
