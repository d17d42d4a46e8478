"""A night of limited time (``budgets.night_minutes``): the cases that waited longest come first, until the clock."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from helpers.history import open_history
from helpers.judging.case.evidence import CaseKey
from helpers.judging.case.verdict import Reason, Status, Verdict
from helpers.plan.case_plan import CasePlan, SuiteCase
from helpers.session import NightLimit
from helpers.session.measuring.case_loop import CaseResult
from helpers.session.outcome import OUT_OF_TIME
from helpers.session.suite_history import history_url, is_there
from helpers.trainers.contract.errors import HistoryUnreachable, NoHistory

if TYPE_CHECKING:
    from helpers.session.suite import Suite


def begin_night(suite: Suite, here: Collection[CaseKey], now: datetime.datetime) -> NightLimit | None:
    """The limit of a night of the cases of ``here`` that begins now. None if perf.yaml limits no night, and for a
    session that records baselines. A session that is resumed has the whole time again."""
    minutes = suite.config.night_minutes
    if minutes is None or suite.options.to_record:
        return None
    cases = suite.in_order(case for case in suite.cases if case.key in here)
    last, note = {}, ""
    try:
        last = _last_measured(suite, cases)
    except HistoryUnreachable as error:
        # The night goes on, and its runs wait on disk for the history.
        note = str(error)
    order = sorted(cases, key=lambda case: last.get(case.key, ""))
    return NightLimit(minutes, now + datetime.timedelta(minutes=minutes), tuple(case.key for case in order), note)


def _last_measured(suite: Suite, cases: Iterable[SuiteCase]) -> dict[CaseKey, str]:
    """When each case was last measured here before this session; without those that never were."""
    options, place = suite.options, suite.machine.place
    found = {}
    if is_there(options, suite.config):
        with (
            contextlib.suppress(NoHistory),
            open_history(history_url(options, suite.config), writes=False) as history,
        ):
            for case in cases:
                # The newest may be of this session, which is resumed.
                for night in history.nights_here(case.case.id, case.target, place, 2):
                    if night.record.session != options.session:
                        found[case.key] = night.record.created
    return found


def out_of_time(case: SuiteCase, why: str) -> CaseResult:
    """The result of a case that the night has not reached."""
    return CaseResult(CasePlan(case), Verdict(Status.NOT_RUN, Reason(OUT_OF_TIME, why)))
