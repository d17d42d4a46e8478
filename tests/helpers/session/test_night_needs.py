"""What is known of a case before a night, by history, baselines and perf.yaml: seconds, noise, how long it waited."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.history.history import History
from helpers.history.nights import NightRecord
from helpers.judging.night_plan import CaseNeed
from helpers.judging.noise import learn
from helpers.plan.case_patterns import Weight
from helpers.plan.night_budget import NightBudget
from helpers.session.night_layout import needs_of
from helpers.session.night_needs import KnownNights
from helpers.session.suite import Suite
from tests.helpers.history.made import BUILD, SEGMENT, STANDING
from tests.helpers.history.made import run as made_run
from tests.helpers.session.workshop import DALI, SYNTHETIC, Bench, case_of, record

TONIGHT = datetime.datetime(2026, 11, 23, 2, tzinfo=datetime.UTC)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History.open(f"sqlite:///{tmp_path / 'history.sqlite'}") as opened:
        yield opened


def night(days_ago: int, case_id: str = SYNTHETIC, rate: float = 2.0, *, place: str, **values: Any) -> NightRecord:
    created = (TONIGHT - datetime.timedelta(days=days_ago)).isoformat()
    given = {"status": "PASS", "run_uuids": (), "standing": replace(STANDING, log_rate=rate)}
    return NightRecord(
        session=f"night-{days_ago}",
        case_id=case_id,
        target="cpu",
        created=created,
        date=created[:10],
        segment={**SEGMENT, "host": place},
        code="",
        reason="",
        cards=1,
        log_rates=(rate,),
        build=BUILD,
        **{**given, **values},
    )


def needs(suite: Suite, history: History, *case_ids: str, session: str = "tonight") -> dict[str, CaseNeed]:
    cases = [case_of(suite, case_id) for case_id in case_ids]
    known = KnownNights.of(history, cases, suite.machine.place, session, TONIGHT.date())
    return {each.case_id: each for each in needs_of(suite, cases, known)}


def test_a_case_has_waited_since_its_last_night_on_this_machine(bench: Bench, history: History) -> None:
    suite = bench.suite()
    place = suite.machine.place
    for days in (5, 4, 2, 1):
        history.add_night(night(days, place=place))
    history.add_night(night(4, DALI, place=place))
    history.add_night(night(1, DALI, place="another machine"))
    found = needs(suite, history, SYNTHETIC, DALI)
    assert (found[SYNTHETIC].waited, found[SYNTHETIC].last_measured) == (1, "2026-11-22")
    # Nobody measured three days ago, so that was no night.
    assert (found[DALI].waited, found[DALI].last_measured) == (3, "2026-11-19")


def test_a_case_that_was_never_measured_has_waited_for_all_nights(bench: Bench, history: History) -> None:
    suite = bench.suite()
    history.add_night(night(2, place=suite.machine.place))
    assert (needs(suite, history, SYNTHETIC, DALI)[DALI].waited, DALI) == (2, DALI)
    assert needs(suite, history, DALI)[DALI].waited == 1


def test_a_night_without_a_figure_measured_nothing(bench: Bench, history: History) -> None:
    suite = bench.suite()
    history.add_night(night(3, place=suite.machine.place))
    history.add_night(night(1, place=suite.machine.place, status="INVALID", standing=None))
    assert needs(suite, history, SYNTHETIC)[SYNTHETIC].last_measured == "2026-11-20"


def test_tonights_own_sessions_change_nothing(bench: Bench, history: History) -> None:
    suite = bench.suite()
    history.add_night(night(2, place=suite.machine.place))
    before = needs(suite, history, SYNTHETIC, DALI)
    history.add_night(night(0, place=suite.machine.place))
    history.add_night(night(0, DALI, place=suite.machine.place))
    assert needs(suite, history, SYNTHETIC, DALI) == before
    assert needs(suite, history, SYNTHETIC, DALI, session="night-0") == before


def test_seconds_are_those_of_the_last_runs_then_of_a_figure_then_of_others(bench: Bench, history: History) -> None:
    suite = bench.suite()
    place = suite.machine.place
    for days, seconds in ((2, 40.0), (1, 60.0)):
        history.add_result(made_run(f"r{days}", wall_seconds=seconds, case_id=SYNTHETIC))
        history.add_night(night(days, place=place, run_uuids=(f"r{days}",)))
    vgg = "paddle-vgg16-fp32-bs1-1x1-dali-dynamic"
    found = needs(suite, history, SYNTHETIC, DALI, vgg)
    assert (found[SYNTHETIC].run_seconds, found[SYNTHETIC].seconds_from) == (50.0, "its last runs")
    assert (found[DALI].run_seconds, found[DALI].seconds_from) == (50.0, "1 other cases of resnet50v1.5")
    assert found[vgg].seconds_from == "1 other cases of any model"
    assert needs(suite, history, vgg)[vgg].seconds_from == "a guess: limits.start_up_seconds"


def test_noise_is_learned_from_the_accepted_nights(bench: Bench, history: History) -> None:
    suite = bench.suite()
    rates = [2.0 + 0.01 * (at % 3) for at in range(20)]
    for at, rate in enumerate(rates):
        history.add_night(night(40 - at, rate=rate, place=suite.machine.place))
    refused = replace(STANDING, accepted=False, log_rate=9.0)
    history.add_night(night(1, rate=9.0, place=suite.machine.place, standing=refused))
    found = needs(suite, history, SYNTHETIC)[SYNTHETIC]
    expected = learn([(rate,) for rate in rates])
    assert (found.sigma, found.tau) == (pytest.approx(expected.sigma), pytest.approx(expected.tau))
    assert not math.isnan(found.sigma)


def test_a_recorded_case_needs_one_run_and_a_good_build_gives_it_pairs(bench: Bench, history: History) -> None:
    record(bench, SYNTHETIC)
    alone, with_good = bench.suite(), bench.suite(reference_env=bench.good_python)
    without = needs(alone, history, SYNTHETIC, DALI)
    assert (without[SYNTHETIC].recorded, without[DALI].recorded) == (True, False)
    # Without a good build, a case without a history is calibrated by five runs.
    assert (without[SYNTHETIC].least_runs, without[SYNTHETIC].pairs) == (5, 0)
    found = needs(with_good, history, SYNTHETIC, DALI)
    assert (found[SYNTHETIC].least_runs, found[SYNTHETIC].pairs) == (1, 40)
    assert found[SYNTHETIC].unasked == pytest.approx(1 / 8)
    assert found[DALI].pairs == 0


def test_the_weight_is_that_of_perf_yaml(bench: Bench, history: History) -> None:
    suite = bench.suite()
    suite.config = replace(suite.config, night=NightBudget(60, 6, 7, (Weight("*synthetic*", None, "", 3.0),)))
    found = needs(suite, history, SYNTHETIC, DALI)
    assert (found[SYNTHETIC].weight, found[DALI].weight) == (3.0, 1.0)
