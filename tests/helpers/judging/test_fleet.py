"""Which nodes of a fleet are slow beyond chance: noise with fixed seeds."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from scipy import stats

from helpers.judging.fleet import ERROR_RATE, judge_fleet
from helpers.trainers.contract.errors import SuiteError

pytestmark = pytest.mark.slow

CASES = tuple(f"c{number}" for number in range(6))
Fleet = dict[str, dict[str, list[float]]]


def made(nodes: int, *, seed: int = 1, runs: int = 4, node: float = 0.003) -> Fleet:
    """Healthy nodes with spread between nodes, between a node's cases and between runs, and bad runs."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(0, node, nodes)
    own = rng.standard_t(5, (nodes, len(CASES))) * 0.0015
    noise = rng.normal(0, 0.001, (nodes, len(CASES), runs))
    noise -= np.where(rng.random(noise.shape) < 0.02, rng.exponential(0.01, noise.shape), 0.0)
    values = 6.0 + shared[:, None, None] + own[:, :, None] + noise
    return {
        f"n{row:03}": {case: [float(each) for each in values[row, column]] for column, case in enumerate(CASES)}
        for row in range(nodes)
    }


def slowed(fleet: Fleet, node: str, share: float) -> None:
    for case in fleet[node]:
        fleet[node][case] = [rate + math.log1p(share) for rate in fleet[node][case]]


def named(fleet: Fleet) -> list[str]:
    return [each.node for each in judge_fleet(fleet).slow]


@pytest.mark.parametrize("nodes", [8, 16, 60])
def test_healthy_fleets_have_at_most_the_stated_rate_of_false_alarms(nodes: int) -> None:
    alarms = sum(bool(named(made(nodes, seed=seed))) for seed in range(40))
    # More than 5 of 40 happen in 1 of 70 tries at a rate of 5%.
    assert alarms <= 5


@pytest.mark.parametrize(("nodes", "share"), [(8, -0.10), (16, -0.04), (60, -0.03), (200, -0.04)])
def test_a_slow_node_is_found_with_its_size(nodes: int, share: float) -> None:
    fleet = made(nodes)
    slowed(fleet, "n007", share)
    verdict = judge_fleet(fleet)
    (found,) = verdict.slow
    assert verdict.nodes[0] is found and (found.node, found.cases, found.runs) == ("n007", 6, 24)
    assert found.shift == pytest.approx(share, abs=0.01) and found.chance <= ERROR_RATE
    # 0.003 between nodes and, over 6 cases, 0.0019 between a node's cases and 0.0006 of the median run.
    assert verdict.spread == pytest.approx(0.0031, rel=0.6)


def test_a_fast_node_is_not_slow_and_makes_no_other_node_slow() -> None:
    fleet = made(60)
    slowed(fleet, "n017", +0.10)
    assert named(fleet) == []


def test_many_slow_nodes_do_not_hide_each_other() -> None:
    fleet = made(60)
    slow = [f"n{number:03}" for number in range(0, 60, 5)]
    for node in slow:
        slowed(fleet, node, -0.06)
    assert sorted(named(fleet)) == slow


def test_nodes_are_rejected_as_holm_says() -> None:
    """The second node is held against one hypothesis fewer than the first."""
    fleet = made(60)
    for node, share in (("n007", -0.06), ("n017", -0.05)):
        slowed(fleet, node, share)
    first, second, *others = judge_fleet(fleet).nodes
    assert first.chance < second.chance < min(each.chance for each in others) <= 1


def test_a_drop_within_the_tolerance_is_not_slow_however_alike_the_nodes_are() -> None:
    fleet = {node: {case: [6.0] for case in CASES} for node in made(60)}
    slowed(fleet, "n017", -0.0045)
    slowed(fleet, "n018", -0.02)
    assert named(fleet) == ["n018"]


def test_a_node_that_lacks_cases_is_still_compared_with_the_others() -> None:
    fleet = made(60)
    slowed(fleet, "n017", -0.05)
    fleet["n017"] = {case: fleet["n017"][case] for case in CASES[:2]}
    fleet["n018"] = {case: [] for case in CASES}
    verdict = judge_fleet(fleet)
    assert [(each.node, each.cases) for each in verdict.slow] == [("n017", 2)]
    assert len(verdict.nodes) == 59


def test_fewer_than_eight_nodes_are_not_judged() -> None:
    fleet = made(7)
    slowed(fleet, "n001", -0.30)
    verdict = judge_fleet(fleet)
    assert verdict.spread is None and not verdict.slow
    assert verdict.nodes[0].node == "n001" and verdict.nodes[0].shift == pytest.approx(-0.3, abs=0.01)


def test_a_rate_that_is_not_finite_is_an_error() -> None:
    fleet = made(8)
    fleet["n001"]["c0"][0] = math.nan
    with pytest.raises(SuiteError, match="c0 on n001"):
        judge_fleet(fleet)


def test_nodes_have_heavier_tails_than_the_normal_distribution() -> None:
    """What no normal distribution has in 100,000 fleets is no wonder by Student's t with five degrees of freedom."""
    fleet = made(60)
    slowed(fleet, "n007", -0.02)
    slowest, *_ = nodes = judge_fleet(fleet).nodes
    shifts = [math.log1p(each.shift) for each in nodes]
    below = min(shifts) - statistics.median(shifts)
    half = statistics.median(abs(shift - statistics.median(shifts)) for shift in shifts)
    normal, student = (60 * each.cdf(below / half * each.ppf(0.75)) for each in (stats.norm(), stats.t(5)))
    assert slowest.chance == pytest.approx(student)
    assert normal < 1e-5 < 0.005 < student < ERROR_RATE
