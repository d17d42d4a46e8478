"""One session held against what this machine recorded: the question that pytest asked of it, asked again by the same
procedure, of the runs that history keeps and of the nights before them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from helpers.history.results import RunResult
from helpers.judging.compare import CaseComparison
from helpers.judging.compare_sides import Pairing, side_of
from helpers.judging.evidence import Past
from helpers.judging.verdict import Question, SubVerdict
from helpers.plan.case_plan import SuiteCase
from helpers.plan.perf_yaml import Config
from helpers.plan.recorded import RecordedEntry
from helpers.session.judged_again import judge_again, plan_again
from helpers.session.measure import evidence_of


def against_recorded(
    pairing: Pairing,
    case: SuiteCase,
    runs: Sequence[RunResult],
    entry: RecordedEntry,
    past: Past,
    config: Config,
    cases_tonight: int,
) -> CaseComparison:
    """``runs`` are all that the session made of the case, ``past`` is what was known before it, ``cases_tonight`` how
    many cases it measured."""
    plan = plan_again(case, runs, config, recorded=entry)
    verdict = judge_again(evidence_of(plan, tuple(runs), past, cases_tonight=cases_tonight))
    # Without one the runs have ended the case before any question was asked.
    answer = verdict.recorded or SubVerdict(Question.RECORDED, verdict.status, verdict.reason)
    sides = side_of(pairing.a), side_of(pairing.b)
    tolerance = plan.tolerance if entry.tolerance is None else entry.tolerance
    told = CaseComparison(pairing.case_id, pairing.target, answer.status, answer.reason, *sides, entry.rule, tolerance)
    return told.of_standing(verdict.standing)
