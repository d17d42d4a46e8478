"""What the tests of the loop share: judges that ask for runs, and the runs that they ask for."""

from __future__ import annotations

from collections.abc import Callable

from helpers.history.results import RunResult
from helpers.judging.case.evidence import Build, Evidence, Stage
from helpers.judging.case.verdict import NeedRuns, Reason, Status, Verdict
from helpers.judging.finding import Code, found
from helpers.plan.case_plan import CasePlan
from helpers.session.measuring.case_loop import CaseResult
from tests.helpers.session_double import STANDING

MakePlan = Callable[..., CasePlan]
MakeRun = Callable[..., RunResult]
Measure = Callable[..., CaseResult]

GOOD_RUN, NEW_RUN = Build.REFERENCE, Build.CANDIDATE
SCREEN, CONFIRM = Stage.SCREEN, Stage.CONFIRM
# One screening run, then two pairs, ABBA: what a suspect gets of the judge below.
SCREENED = [(NEW_RUN, SCREEN)]
PAIRS = [(GOOD_RUN, CONFIRM), (NEW_RUN, CONFIRM), (NEW_RUN, CONFIRM), (GOOD_RUN, CONFIRM)]


def confirming(evidence: Evidence) -> Verdict | NeedRuns:
    """A judge that screens once and wants two pairs, whatever the runs say; it asks for what is missing of them."""
    made = [(run.build, run.stage) for run in evidence.runs]
    wanted = [*SCREENED, *PAIRS]
    if len(made) == len(wanted):
        return Verdict(Status.REGRESSION, Reason("confirmed", "slower"), standing=STANDING)
    stage = wanted[len(made)][1]
    left = [each for each, of in wanted[len(made) :] if of is stage]
    return NeedRuns(tuple(left), found(Code.PLANNED, runs=len(left)), stage)


def settled(evidence: Evidence) -> Verdict | NeedRuns:
    """A judge that one usable run satisfies."""
    if any(run.invalid is None for run in evidence.runs):
        return Verdict(Status.PASS, Reason("x", "y"), standing=STANDING)
    return NeedRuns((NEW_RUN,), found(Code.PLANNED, runs=1))
