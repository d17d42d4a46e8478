"""Lays out the night of a suite on this machine: which of its cases, and from when to when."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from helpers.history import open_history
from helpers.judging.night_layout import coming_nights, lay_out
from helpers.judging.night_plan import CaseNeed, NightLimits, NightPlan
from helpers.plan.case_plan import SuiteCase
from helpers.plan.installed import REFERENCE
from helpers.plan.night_budget import NightBudget
from helpers.session.night_needs import KnownNights, NeedsOf
from helpers.session.night_time import NightTime
from helpers.session.suite_history import history_url, is_there
from helpers.trainers.contract.errors import ConfigError, HistoryUnreachable, NoHistory

if TYPE_CHECKING:
    from helpers.session.suite import Suite

Key = tuple[str, str]


def begin_night(suite: Suite, here: Collection[Key], now: datetime.datetime) -> tuple[NightPlan, NightTime] | None:
    """Tonight's plan for the cases of ``here``, and its time, which begins now. None if perf.yaml limits no night, and
    for a session that records baselines.

    Cases that cannot run here are in no plan. Raises ConfigError for a night that is too short for every case, and
    HistoryError if the history cannot be used.
    """
    budget = suite.config.night
    if budget is None or suite.options.to_record:
        return None
    runnable = [case for case in suite.cases if case.key in here and suite.why_not(case) is None]
    if not runnable:
        return None
    note = ""
    try:
        needs = needs_of(suite, runnable)
    except HistoryUnreachable as error:
        # The night goes on, and its runs wait on disk for the history.
        needs, note = needs_of(suite, runnable, KnownNights()), f"made without earlier nights: {error}"
    plan = replace(lay_out(needs, limits_of(budget)), note=note)
    if not plan.tonight:
        _refuse_short(suite, plan)
    used = sum(run.wall_seconds for case in runnable for run in suite.store.results(case.case.id))
    return plan, NightTime.of(plan, now, used if suite.options.resume else 0.0)


def nights_of(
    suite: Suite, cases: Sequence[SuiteCase], budget: NightBudget | None, nights: int
) -> tuple[NightPlan, ...]:
    """The coming nights, tonight first, if each goes as planned. Nothing is measured. Raises HistoryError."""
    limits = NightLimits() if budget is None else limits_of(budget)
    return coming_nights(needs_of(suite, cases), limits, nights)


def limits_of(budget: NightBudget) -> NightLimits:
    return NightLimits(budget.minutes, budget.search_minutes, budget.every_nights)


def needs_of(suite: Suite, cases: Sequence[SuiteCase], known: KnownNights | None = None) -> tuple[CaseNeed, ...]:
    """What is known of the cases. A history that does not exist yet is empty. Raises HistoryError."""
    options, config, machine = suite.options, suite.config, suite.machine
    if known is None and is_there(options, config):
        with (
            contextlib.suppress(NoHistory),
            open_history(history_url(options, config), writes=False) as history,
        ):
            known = KnownNights.of(history, cases, machine.place, options.session, options.record.date)

    def card_name(target: str) -> str:
        cards = machine.cards_of(target)
        return cards[0].name if cards else ""

    needs = NeedsOf(
        config,
        machine.place,
        card_name,
        lambda case: suite.recorded_entry(case.target, case.case.id),
        has_good=bool(options.reference_env or REFERENCE in options.builds)
        or (options.pinned_reference and config.builds.good is not None),
        overridden=bool(options.overrides),
    )
    return needs.needs(cases, known or KnownNights())


def _refuse_short(suite: Suite, plan: NightPlan) -> None:
    shortest = min(each.need.least_runs * each.need.run_seconds / 60 for each in (*plan.no_time, *plan.later))
    raise ConfigError(
        str(suite.config.path),
        field="budgets.night_minutes",
        got=f"{plan.limits.minutes:g}",
        expected=f"{plan.needed_minutes:.0f} or more, so that every case is measured once in "
        f"{plan.limits.every_nights} nights",
        remedy=f"The shortest case takes {shortest:.1f} min, and what confirms a drop comes on top: perfgate plan",
    )
