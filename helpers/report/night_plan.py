"""A night's plan in words, as a table and as plain values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from helpers.judging.night_plan import GUESSED, Choice, NightPlan, PlannedCase, Why
from helpers.judging.wording import counted
from helpers.report.table import Align, Column, Table

# A header has at most so many lines of cases; the others are counted.
_SHOWN = 20


def plan_summary(plan: NightPlan) -> Iterator[str]:
    """How the night's time is divided, and whether it is enough."""
    if plan.note:
        yield f"night plan: {plan.note}"
    cases = _cases(plan)
    limits, many = plan.limits, len(cases)
    if guessed := [each.need.run_seconds for each in cases if each.need.seconds_from == GUESSED]:
        yield (
            f"night plan: of {len(guessed)} of {many} cases no run is known yet; {guessed[0] / 60:.1f} min a run is a "
            "guess (limits.start_up_seconds)"
        )
    runs, kept = f"{plan.screening_minutes:.1f} min of runs", f"{plan.confirmation_minutes:.1f} min to confirm suspects"
    if limits.minutes is None:
        yield f"night plan: no limit (budgets.night_minutes): {many} cases, {runs}, {kept}"
        return
    yield (
        f"night plan: {len(plan.tonight)} of {many} cases in {limits.minutes:g} min: {runs}; kept: {kept}, "
        f"{limits.search_minutes:.1f} min for bisect and explain; {plan.spare_minutes:.1f} min spare"
    )
    if not plan.keeps_its_word:
        yield (
            f"night plan: {limits.minutes:g} min a night are too few for every case once in {limits.every_nights} "
            f"nights, which takes about {plan.needed_minutes:.0f} min (budgets.night_minutes, budgets.every_nights)"
        )


def plan_lines(plan: NightPlan) -> Iterator[str]:
    """The lines for a session's header and its end: the summary, and the cases that are not measured tonight."""
    yield from plan_summary(plan)
    for each in plan.no_time:
        yield (
            f"due tonight without time: {_named(each)}: {_last(each)}; it is tried at the end, and is no "
            "pass if it is not reached"
        )
    for each in plan.later[:_SHOWN]:
        yield f"not tonight: {_named(each)}: {when_measured(each)}"
    if (more := len(plan.later) - _SHOWN) > 0:
        yield f"not tonight: {more} more: perfgate plan lists them"


def when_measured(case: PlannedCase) -> str:
    """``last measured 2026-11-20, due in 3 nights``."""
    return f"{_last(case)}, due in {counted(case.due_in, 'night')}"


def plan_table(plan: NightPlan) -> Table:
    """A line for each case, in the order of measuring."""
    return Table.of(_COLUMNS, _cases(plan))


def plan_record(plan: NightPlan) -> dict[str, Any]:
    """The plan as plain values; drops are fractions."""
    limits = plan.limits
    return {
        "minutes": limits.minutes,
        "every_nights": limits.every_nights,
        "run_minutes": plan.screening_minutes,
        "confirmation_minutes": plan.confirmation_minutes,
        "search_minutes": limits.search_minutes,
        "spare_minutes": plan.spare_minutes,
        "needed_minutes": plan.needed_minutes,
        "enough": plan.keeps_its_word,
        "cases_counted": plan.counted,
        "note": plan.note,
        "cases": [_case_record(each) for each in _cases(plan)],
    }


def _cases(plan: NightPlan) -> tuple[PlannedCase, ...]:
    """All cases, in the order of measuring."""
    return (*plan.tonight, *plan.no_time, *plan.later)


def _case_record(case: PlannedCase) -> dict[str, Any]:
    need, choice = case.need, _choice_of(case)
    return {
        "case_id": need.case_id,
        "target": need.target,
        "tonight": case.tonight,
        "why": case.why.value,
        "runs": choice.runs if choice is not None else 0,
        "in_pairs": bool(case.choice is not None and case.choice.in_pairs),
        "minutes": choice.minutes if choice is not None else 0.0,
        "run_seconds": need.run_seconds,
        "run_seconds_from": need.seconds_from,
        "sigma": need.sigma,
        "tau": need.tau,
        "weight": need.weight,
        "smallest_drop_tonight": case.drop,
        "smallest_drop_within_a_week": case.week_drop,
        "last_measured": need.last_measured or None,
        "due_in_nights": case.due_in,
    }


def _choice_of(case: PlannedCase) -> Choice | None:
    """How the case is measured tonight; None if the plan has no time for it."""
    return case.choice if case.tonight else None


def _named(case: PlannedCase) -> str:
    return f"{case.need.case_id} [{case.need.target}]"


def _last(case: PlannedCase) -> str:
    return f"last measured {case.need.last_measured}" if case.need.last_measured else "never measured here"


def _tonight(case: PlannedCase) -> str:
    choice = _choice_of(case)
    if choice is None:
        return "-"
    runs = counted(choice.runs, "run")
    return f"{runs} + pairs" if choice.in_pairs else runs


def _minutes(case: PlannedCase) -> str:
    choice = _choice_of(case)
    return "-" if choice is None else f"{choice.minutes:.1f}"


def _drop(drop: float | None) -> str:
    return "-" if drop is None else f"{drop:.1%}"


def _why(case: PlannedCase) -> str:
    if case.why is Why.LATER:
        return f"{case.why.value}: due in {counted(case.due_in, 'night')}"
    why: str = case.why.value
    if case.need.recorded:
        return why
    # Without a recorded figure it finds no drop, so time alone is the reason for it.
    why = "there is time" if case.why is Why.GAIN else why
    return f"{why}; nothing recorded (--update-baselines), so it finds no drop"


_COLUMNS: tuple[Column[PlannedCase], ...] = (
    Column("case", _named),
    Column("tonight", _tonight),
    Column("min", _minutes, Align.RIGHT),
    Column("finds", lambda case: _drop(case.drop), Align.RIGHT),
    Column("in a week", lambda case: _drop(case.week_drop), Align.RIGHT),
    Column("last measured", lambda case: case.need.last_measured or "never"),
    Column("why", _why),
)
