"""Whole nights against a reference build that the recorded level has left: sessions, pairs and history over many
nights.

docs/verdicts.md, "Level against the reference build" and "Without a reference build": each of these once ended in a
wrong verdict.
Nights that several tests begin with are measured once; each test goes on with a copy of their history and run folders.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.history import default_url, open_history
from helpers.history.history import History
from helpers.history.results import RunResult
from helpers.history.run_folders import ResultStore
from helpers.history.session_file import SessionRecord
from helpers.history.stored import SegmentStart
from helpers.judging.case.evidence import Budget, Build, Stage
from helpers.judging.case.verdict import Status
from helpers.judging.rules.own import MEDIAN_STEP
from helpers.plan.case_plan import CasePlan
from helpers.plan.overrides import segment_of
from helpers.plan.recorded import Provenance, RecordedEntry
from helpers.report.reasons import reason_text
from helpers.session.measuring.case_loop import CaseResult, MeasureRequest, measure_case
from tests.helpers.session_double import GOOD, NEW, roles

pytestmark = pytest.mark.slow

MakePlan = Callable[..., CasePlan]
MakeRun = Callable[..., RunResult]

FIRST = datetime.datetime(2026, 9, 1, 3, tzinfo=datetime.UTC)
OTHER_GOOD = {**GOOD, "version": "3.2.2", "commit": "fedcba", "interpreter": "/envs/older/bin/python"}
GREEN = (Status.PASS, Status.IMPROVEMENT)


@dataclass
class World:
    """A machine on which both builds run at given images/s, each run 0.2% about it; a night a session."""

    plan: CasePlan
    make_run: MakeRun
    history: History
    folder: Path
    night_number: int = 0
    rng: Any = field(default_factory=lambda: np.random.default_rng(5))
    sigma: float = 0.002

    def night(self, new: float, good: float = 100.0, **plan: Any) -> CaseResult:
        """One session: what the build under test and the reference build run at tonight."""
        name = f"night{self.night_number:03d}"
        self.night_number += 1
        when = FIRST + datetime.timedelta(days=self.night_number)
        store = ResultStore(self.folder, name, SessionRecord(began=when.isoformat()))
        runner = _Runner(self, store, {Build.CANDIDATE: new, Build.REFERENCE: good}, when)
        return measure_case(
            replace(self.plan, **plan), runner, store, self.history, MeasureRequest(cases_tonight=60), now=lambda: when
        )

    def nights(self, count: int, new: float, good: float = 100.0, **plan: Any) -> list[CaseResult]:
        return [self.night(new, good, **plan) for _ in range(count)]

    def record(self, samples_per_s: float, build: dict[str, str]) -> None:
        """As ``--update-baselines`` does: the entry is ``build``'s, and the nights before it are left behind."""
        self.plan = replace(self.plan, recorded=entry(self.plan, self.make_run, samples_per_s, build))
        segment = self.plan.recorded.segment if self.plan.recorded else {}
        when = FIRST + datetime.timedelta(days=self.night_number, minutes=1)
        case, target = self.plan.case.id, self.plan.suite_case.target
        self.history.start_segment(SegmentStart(case, target, segment, when.isoformat(), "recorded"))


@dataclass
class _Runner:
    world: World
    store: ResultStore
    rates: dict[Build, float]
    when: datetime.datetime

    def run(self, plan: CasePlan, replicate: int, build: Build, stage: Stage) -> RunResult:
        rate = self.rates[build] * float(np.exp(self.world.sigma * self.world.rng.normal()))
        made = self.world.make_run(
            plan,
            replicate,
            **{
                **roles(plan, build, stage),
                "samples_per_s": rate,
                "session": self.store.session,
                "uuid": f"{self.store.session}-{replicate}",
                "created": self.when.isoformat(),
            },
        )
        self.store.new_run_folder(plan.case.id, replicate)
        self.store.write(made)
        return made


def entry(plan: CasePlan, make_run: MakeRun, samples_per_s: float, build: dict[str, str]) -> RecordedEntry:
    first = make_run(plan)
    facts = {
        **first.environment,
        "framework": build["framework"],
        "framework_version": build["version"],
        "framework_commit": build["commit"],
    }
    rates = tuple(samples_per_s * each for each in (0.998, 1.0, 1.001))
    segment = segment_of(first.environment, {}, plan.case.id)
    provenance = Provenance(build["commit"], "2026-08-31", "h", "first")
    return RecordedEntry(plan.case.id, samples_per_s, MEDIAN_STEP, rates, None, facts, segment, provenance)


FirstNights = Callable[[World], object]
Learn = Callable[[FirstNights], World]


@pytest.fixture(scope="module")
def learn(make_plan: MakePlan, make_run: MakeRun, tmp_path_factory: pytest.TempPathFactory) -> Learn:
    """A world in which these nights have passed, whose history is closed. It was recorded at 100 images/s with the good
    build itself; 10 nights make a history in a few runs."""
    learnt: dict[FirstNights, World] = {}

    def after(first_nights: FirstNights) -> World:
        if first_nights not in learnt:
            folder = tmp_path_factory.mktemp("learnt")
            plan = make_plan(build=NEW, reference=GOOD, budget=Budget(rotation=3))
            plan = replace(plan, recorded=entry(plan, make_run, 100.0, GOOD))
            with open_history(default_url(folder)) as history:
                world = World(plan, make_run, history, folder)
                first_nights(world)
            learnt[first_nights] = world
        return learnt[first_nights]

    return after


@pytest.fixture
def world_after(learn: Learn, tmp_path: Path) -> Iterator[Learn]:
    """A test's own world, in which these nights have passed."""
    with contextlib.ExitStack() as histories:

        def copied(first_nights: FirstNights) -> World:
            learnt = learn(first_nights)
            shutil.copytree(learnt.folder, tmp_path, dirs_exist_ok=True)
            history = histories.enter_context(open_history(default_url(tmp_path)))
            return replace(learnt, history=history, folder=tmp_path, rng=copy.deepcopy(learnt.rng))

        yield copied


@pytest.fixture
def world(world_after: Learn) -> World:
    """One without a night."""
    return world_after(no_nights)


def statuses(results: list[CaseResult]) -> list[Status]:
    return [each.verdict.status for each in results]


def codes(results: list[CaseResult]) -> list[str]:
    return [each.verdict.reason.code for each in results]


def no_nights(world: World) -> None:
    assert world.night_number == 0


def ten_nights(world: World) -> None:
    world.nights(10, 100.0)


def ten_nights_without_a_good_build(world: World) -> None:
    world.nights(10, 100.0, reference={})


def ten_nights_without_a_good_build_recorded_at_102(world: World) -> None:
    world.record(102.0, NEW)
    world.nights(10, 102.0, reference={})


def gained(world: World, rate: float = 105.0) -> None:
    """A gain over the pin at 100: confirmed, recorded with the new build, and 20 nights there. The pin stays."""
    ten_nights(world)
    found = world.night(rate)
    assert found.verdict.status is Status.IMPROVEMENT, found.verdict.reason
    world.record(rate, NEW)
    assert set(statuses(world.nights(20, rate))) == {Status.PASS}


# --- what was recorded in a slow hour


def test_the_first_night_asks_the_good_build_once_how_the_machine_ran(world: World) -> None:
    first, second = world.nights(2, 100.0)
    assert [run.role for run in first.runs].count("reference") == 1
    assert {run.role for run in second.runs} == {"candidate"}


@pytest.mark.parametrize("recorded", [GOOD, NEW])
def test_a_baseline_of_a_slow_hour_hides_no_loss(world: World, recorded: dict[str, str]) -> None:
    if recorded is NEW:
        # Recorded beside the reference build, which is 2% slower.
        pairs = world.night(97.1, 95.2, to_record=True, recorded=None).runs
        assert [run.is_confirming for run in pairs].count(True) >= 6
    world.record(95.2 if recorded is GOOD else 97.1, recorded)
    lost = world.night(95.2 if recorded is GOOD else 97.1)
    assert lost.verdict.status is Status.REGRESSION, lost.verdict.reason


# --- a gain that is lost again


def test_what_is_lost_of_a_gain_is_a_regression_although_the_good_build_is_slower_still(
    world_after: Learn,
) -> None:
    world = world_after(gained)
    for found in world.nights(3, 102.0):
        assert found.verdict.status is Status.REGRESSION, found.verdict.reason
        assert found.verdict.standing is not None and not found.verdict.standing.new_segment
        assert found.verdict.standing.pairs.level == pytest.approx(0.05, abs=0.003)
        assert "at the level of the nights before (+" in reason_text(found.verdict.reason)


def test_a_level_that_nobody_knows_is_measured_on_one_unasked_night(world_after: Learn) -> None:
    world = world_after(ten_nights_without_a_good_build)
    world.record(105.0, NEW)
    world.nights(10, 105.0, reference={})
    asked = world.nights(3, 105.0)
    assert codes(asked).count("level-measured") == 1
    assert set(statuses(asked)) == {Status.PASS}
    measured = next(each for each in asked if each.verdict.reason.code == "level-measured")
    assert measured.verdict.standing is not None and measured.verdict.standing.pair_count >= 3
    assert world.night(102.0).verdict.status is Status.REGRESSION


@pytest.mark.parametrize("good", [100.0, 98.0])
def test_pairs_that_are_alike_say_nothing_while_the_level_is_unknown(world_after: Learn, good: float) -> None:
    world = world_after(ten_nights_without_a_good_build_recorded_at_102)
    found = world.nights(8, good, good)
    assert found[0].verdict.reason.code == "level-unknown"
    assert set(statuses(found)) == {Status.INCONCLUSIVE}
    assert not any(
        each.verdict.standing and each.verdict.standing.pairs and each.verdict.standing.pairs.machine_slow
        for each in found
    )


def test_a_build_pinned_anew_starts_a_level_of_its_own(world_after: Learn) -> None:
    world = world_after(gained)
    # Another reference build, at 103: the old one's level must not be held against it.
    found = world.nights(4, 105.0, 103.0, reference=OTHER_GOOD)
    assert set(statuses(found)) == {Status.PASS}
    assert "level-measured" in codes(found)
    lost = world.night(103.0, 103.0, reference=OTHER_GOOD)
    assert lost.verdict.status is Status.REGRESSION
    assert lost.verdict.standing is not None
    assert lost.verdict.standing.pairs.level == pytest.approx(0.0194, abs=0.004)
    # The build that was pinned before still has its own.
    assert world.night(103.0).verdict.status is Status.REGRESSION


# --- the machine, and what both builds load


def test_a_machine_that_is_slow_tonight_is_told_where_the_good_build_is_below_its_own_nights(
    world_after: Learn,
) -> None:
    world = world_after(ten_nights)
    world.nights(2, 100.0)
    found = world.night(97.0, 97.0)
    assert (found.verdict.status, found.verdict.reason.code) == (Status.PASS, "machine-slow")
    assert "the reference build is itself " in reason_text(found.verdict.reason)
    assert found.verdict.standing is not None and found.verdict.standing.pairs is not None
    assert found.verdict.standing.pairs.good_shift == pytest.approx(-0.03, abs=0.004)
    assert set(statuses(world.nights(3, 100.0))) == {Status.PASS}


def test_slower_trainer_code_that_both_builds_run_does_not_stay_green(world_after: Learn) -> None:
    world = world_after(ten_nights)
    world.nights(2, 100.0)
    found = world.nights(9, 95.0, 95.0)
    assert set(codes(found[:4])) == {"machine-slow"}
    assert (set(codes(found[4:])), set(statuses(found[4:]))) == ({"reference-build-slower"}, {Status.INCONCLUSIVE})
    told = [reason_text(each.verdict.reason) for each in found[4:]]
    assert all(
        "(driver, libraries, trainer code or machine)" in each and "--accept-regression" in each for each in told
    )
    assert not any(each.verdict.standing and each.verdict.standing.new_segment for each in found)
    # The cause is found and mended: green again, with its reason.
    assert world.night(100.0).verdict.status in GREEN


def test_a_slower_build_after_slow_nights_of_the_machine_is_found(world_after: Learn) -> None:
    world = world_after(ten_nights)
    world.nights(2, 100.0)
    world.nights(2, 95.0, 95.0)
    assert world.night(92.0, 95.0).verdict.status is Status.REGRESSION


# --- the first nights


def test_in_the_first_nights_a_gain_that_was_recorded_is_no_gain_once_more(world: World) -> None:
    world.record(105.0, NEW)
    found = world.nights(8, 105.0)
    assert set(statuses(found)) == {Status.PASS}
    assert "level-measured" in codes(found)
    assert world.night(102.0).verdict.status is Status.REGRESSION


@pytest.mark.parametrize("sigma", [0.001, 0.006])
def test_an_entry_below_a_good_build_that_was_pinned_later_is_no_regression_every_night(
    world: World, sigma: float
) -> None:
    world.sigma = sigma
    world.record(97.0, NEW)
    found = world.nights(12, 97.0)
    assert Status.REGRESSION not in statuses(found)
    assert codes(found).count("below-reference-build") <= 1
    assert set(statuses(found[6:])) <= {Status.PASS, Status.INCONCLUSIVE} and found[-1].verdict.status is Status.PASS


def test_a_fall_beyond_doubt_fails_although_nobody_knows_the_level(world: World) -> None:
    world.record(105.0, NEW)
    world.nights(10, 105.0, reference={})
    assert world.night(70.0, 70.0).verdict.status is Status.SLOWER
    assert world.night(70.0).verdict.status is Status.REGRESSION
    # Recorded at 105, so 103 was never accepted: what nobody knows of the nights between does not stand in the way.
    assert world.night(103.0, 106.0).verdict.status is Status.REGRESSION


# --- no reference build


def test_a_drop_beyond_the_band_that_nobody_can_confirm_is_slower_every_night(world_after: Learn) -> None:
    world = world_after(ten_nights_without_a_good_build)
    found = world.nights(12, 66.0, reference={})
    assert set(statuses(found)) == {Status.SLOWER}
    assert all(len(each.runs) >= 3 for each in found)
    first = reason_text(found[0].verdict.reason)
    assert "build and machine cannot be told apart" in first and "--reference-build BUILD" in first


def test_five_runs_a_third_below_a_first_entry_are_slower(world: World) -> None:
    found = world.night(66.0, reference={})
    assert (found.verdict.status, len(found.runs)) == (Status.SLOWER, 5)
    assert "-34" in reason_text(found.verdict.reason)


# --- the interval, and what would have been seen


def test_an_entry_whose_runs_lie_far_apart_claims_no_small_drop(world: World) -> None:
    assert world.plan.recorded is not None
    scattered = replace(world.plan.recorded, samples_per_s=100.0, replicates=(122.1, 77.9))
    standing = world.night(101.0, recorded=scattered, reference={}).verdict.standing
    assert standing is not None and standing.effect is not None
    assert standing.smallest_drop is not None and standing.smallest_drop > 0.1
    assert standing.effect.low < -0.1 and standing.effect.high > 0.1
    quiet = world.night(101.0, reference={}).verdict.standing
    assert quiet is not None and quiet.smallest_drop is not None and quiet.smallest_drop < 0.05
