"""The verdict on a case whose minutes (``budgets.case_minutes``) are used up while its judge still asks for runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from helpers.judging.case.evidence import Build, Evidence
from helpers.judging.case.judge import measured_of, only_shown
from helpers.judging.case.verdict import NeedRuns, Reason, Status, Verdict
from helpers.judging.finding import Code, Finding, found


def judged_in_time(
    evidence: Evidence, request: NeedRuns, over: Finding, judge: Callable[[Evidence], Verdict | NeedRuns]
) -> Verdict:
    """The verdict without the runs of ``request``; ``over`` says that the time is over.

    Whole pairs are judged as if the budget had no more of them, which may leave them open. Without pairs that can be
    looked at, the case is INCONCLUSIVE: nothing that a request asks for is taken as answered.
    """
    whole = _without_half_pair(evidence)
    if pairs := len(whole.in_pairs(Build.CANDIDATE)):
        answer = judge(replace(whole, budget=replace(whole.budget, pairs=pairs)))
        if isinstance(answer, Verdict):
            shown = (over, *answer.reason.findings, found(Code.STILL_OPEN, request.why))
            return replace(answer, reason=replace(answer.reason, findings=shown))
    reason = Reason.of(over, found(Code.STILL_OPEN, request.why))
    return only_shown(whole, Verdict(Status.INCONCLUSIVE, reason, measured_of(whole)))


def _without_half_pair(evidence: Evidence) -> Evidence:
    new, good = (evidence.in_pairs(build) for build in Build)
    if len(new) == len(good):
        return evidence
    half = max(new, good, key=len)[-1]
    last = max(at for at, run in enumerate(evidence.runs) if run is half)
    return replace(evidence, runs=(*evidence.runs[:last], *evidence.runs[last + 1 :]))
