"""A night of limited time: the order of its cases by what the history has, and its clock in every process."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import pytest

import helpers.session.night_limit
from helpers.history import default_url, open_history
from helpers.history.run_folders import ResultStore
from helpers.judging.case.verdict import Status
from helpers.report.reasons import reason_text
from helpers.session import NightLimit
from helpers.session.suite import Suite
from helpers.trainers.contract.errors import HistoryUnreachable
from tests.helpers.session.workshop import DALI, SYNTHETIC, Bench, case_of

HERE = {("cpu", SYNTHETIC), ("cpu", DALI)}


def limited(bench: Bench, minutes: float | None = 60.0, **options: object) -> Suite:
    suite = bench.suite(**options)  # type: ignore[arg-type]
    suite.config = replace(suite.config, night_minutes=minutes)
    return suite


def order_of(suite: Suite) -> list[str]:
    night = suite.begin_night(HERE)
    assert night is not None
    return [case_id for _, case_id in night.order]


@pytest.mark.slow
def test_the_case_that_was_measured_longest_ago_comes_first_and_one_that_never_was_before_it(
    bench: Bench, tmp_path: Path
) -> None:
    usual = order_of(limited(bench))
    with open_history(default_url(tmp_path)) as history:
        bench.memory = history
        for day, case_id in (("monday", usual[0]), ("tuesday", usual[1]), ("wednesday", usual[0])):
            bench.runner.store = ResultStore(tmp_path, day)
            bench.runner.usual = {"session": day}
            suite = limited(bench, runs_folder=tmp_path)
            suite.measurer.measure(case_of(suite, case_id))
            if day == "monday":
                assert order_of(limited(bench, runs_folder=tmp_path, session="later")) == [usual[1], usual[0]]
        assert order_of(limited(bench, runs_folder=tmp_path, session="later")) == [usual[1], usual[0]]
        # A session that is resumed goes on in its own order.
        assert order_of(limited(bench, runs_folder=tmp_path, session="wednesday", resume=True)) == usual


def test_a_case_after_the_end_is_not_run_and_one_before_it_is(bench: Bench) -> None:
    suite = limited(bench)
    assert suite.begin_night(HERE) is not None
    assert suite.measurer.measure(case_of(suite, SYNTHETIC)).status is not Status.NOT_RUN
    made = len(bench.runner.asked)
    over = NightLimit(60.0, datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC), ())
    suite.options = replace(suite.options, night=over)
    outcome = suite.measurer.measure(case_of(suite, DALI))
    assert (outcome.status, outcome.verdict.reason.code, outcome.gating.effect.value) == (
        Status.NOT_RUN,
        "out-of-time",
        "skip",
    )
    assert "60 min (budgets.night_minutes)" in outcome.told(reason_text)
    assert len(bench.runner.asked) == made
    # What the night has confirmed may end later.
    assert suite.measurer.confirm(case_of(suite, SYNTHETIC), "a group fell together").status is not Status.NOT_RUN


def test_without_minutes_and_for_baselines_there_is_no_limit(bench: Bench) -> None:
    assert limited(bench, None).begin_night(HERE) is None
    assert limited(bench, to_record=True).begin_night(HERE) is None


def test_a_history_that_does_not_answer_leaves_the_usual_order_and_is_named(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = order_of(limited(bench))

    def away(*_: object) -> dict[tuple[str, str], str]:
        raise HistoryUnreachable("history", got="no answer")

    monkeypatch.setattr(helpers.session.night_limit, "_last_measured", away)
    suite = limited(bench)
    assert order_of(suite) == usual
    night = suite.begin_night(HERE)
    assert night is not None and "no answer" in night.text
