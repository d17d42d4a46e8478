"""One configuration measured in every framework that this machine has, in turn on the same cards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from helpers.history.results import RunResult
from helpers.judging.case.evidence import Build, Evidence, Stage
from helpers.judging.case.judge import attempts_used_up, end_without_comparison
from helpers.judging.case.verdict import NeedRuns, Reason, Status, Verdict
from helpers.judging.finding import Code, found
from helpers.judging.rules.rates import rate_unit
from helpers.launch.tail import Progress
from helpers.plan.case_plan import CPU, CasePlan, SuiteCase, usual_targets
from helpers.session.measuring.case_loop import CaseResult, MeasureRequest
from helpers.session.measuring.job_runner import JobRunner, RunTerms, leased_runner
from helpers.session.side_by_side.comparison import COMPARED, ConfigurationOutcome, outcome_of
from helpers.session.side_by_side.configurations import PAIRS, Configuration
from helpers.session.suite import Suite
from helpers.trainers.contract.errors import SuiteError
from helpers.trainers.contract.frameworks import Framework

OnProgress = Callable[[Progress], None]

NO_OTHER_FRAMEWORK = "no other framework can run it here"

_ONE_NODE = (
    "frameworks are compared on one node: perf.yaml names one interpreter for each of the other hosts, and which "
    "framework it has is not known"
)
# A limit in case the judge goes wrong; budgets bound how often a run is repeated.
_MOST_RUNS = 100


@dataclass(frozen=True)
class _OneLease:
    """A runner for all frameworks on one lease, so that they have the same cards. Each reads its own images."""

    leased: JobRunner

    def run(self, plan: CasePlan, replicate: int, build: Build, stage: Stage) -> RunResult:
        terms = replace(self.leased.terms, data=plan.images)
        return replace(self.leased, terms=terms).run(plan, replicate, build, stage)


def compare_frameworks(
    suite: Suite, configuration: Configuration, on_progress: OnProgress | None = None
) -> ConfigurationOutcome:
    """Run the configuration PAIRS times in each framework (A B, B A, A B, …; fresh processes) and compare the
    figures. Every run is stored as a run of its case, but later nights learn nothing from it.

    If one framework fails, its cell stays empty, and the others go on.
    """
    plans: list[CasePlan] = []
    turns: list[SuiteCase] = []
    not_here: dict[Framework, str] = {}
    results: dict[Framework, CaseResult] = {}
    for member in configuration.members:
        try:
            plan = _ONE_NODE if member.case.nodes > 1 else suite.measurer.plan(member)
        except (SuiteError, OSError) as error:
            results[member.case.framework] = _broken(member, error)
            continue
        if isinstance(plan, str):
            not_here[member.case.framework] = plan
        else:
            plans.append(plan)
            turns.append(member)
    try:
        with _one_lease(suite, plans, on_progress):
            for number in range(PAIRS):
                # ABBA: what drifts meanwhile affects all frameworks alike.
                for each in turns if number % 2 == 0 else reversed(turns):
                    before = results.get(each.case.framework)
                    if before is None or before.verdict.reason.code == COMPARED:
                        request = MeasureRequest(
                            by=partial(beside_others, number + 1), resume=number > 0, most=_MOST_RUNS
                        )
                        results[each.case.framework] = suite.measurer.make_runs(each, request, on_progress)
    except (SuiteError, OSError) as error:
        results = {each.case.framework: _broken(each, error) for each in turns} | results
    return outcome_of(configuration, results, not_here)


def unmeasured(suite: Suite, configuration: Configuration) -> ConfigurationOutcome:
    """The outcome of a configuration that cannot be compared here."""
    reasons = {each.case.framework: why_not(suite, each) or NO_OTHER_FRAMEWORK for each in configuration.members}
    return outcome_of(configuration, {}, reasons)


def can_compare(suite: Suite, configuration: Configuration) -> bool:
    """Whether this machine can run a configuration in two of its frameworks or more."""
    return sum(why_not(suite, member) is None for member in configuration.members) > 1


def why_not(suite: Suite, suite_case: SuiteCase) -> str | None:
    """Why this machine cannot measure the case beside the other frameworks' cases, in one line."""
    return suite.why_not(suite_case) or (_ONE_NODE if suite_case.case.nodes > 1 else None)


def _broken(case: SuiteCase, error: Exception) -> CaseResult:
    return CaseResult(CasePlan(case), Verdict(Status.INFRA_ERROR, Reason(type(error).__name__, str(error))))


@contextlib.contextmanager
def _one_lease(suite: Suite, plans: Iterable[CasePlan], on_progress: OnProgress | None) -> Iterator[None]:
    """Have the suite's cases run on one lease of cards."""
    plans = tuple(plans)
    if suite.runner is not None or not plans:
        yield
        return
    terms = RunTerms(
        allow_contention=all(map(suite.measurer.allows_contention, plans)),
        share_machine=suite.options.share_machine,
        system=suite.system,
    )
    with leased_runner(plans[0], suite.machine, suite.store, suite.config, terms, on_progress) as runner:
        suite.runner = _OneLease(runner)
        try:
            yield
        finally:
            suite.runner = None


def beside_others(runs: int, evidence: Evidence) -> Verdict | NeedRuns:
    """The judge of a case's part in a comparison, which needs so many ``runs``. Its figures are compared with no
    reference.

    A failed or invalid run is repeated as in any session (budgets in perf.yaml). A refusal ends it.
    """
    if (ended := end_without_comparison(evidence, attempts_used_up(evidence))) is not None:
        return ended
    usable = [run for run in evidence.runs if run.usable]
    for run in usable:
        if not isinstance(figure := run.figures.get(evidence.rule), float):
            why = figure or "the rule is not known"
            message = f"no {rate_unit(evidence.case_id)} by {evidence.rule}: {why}"
            return Verdict(Status.INFRA_ERROR, Reason("no-figure", message))
    if len(usable) < runs:
        return NeedRuns((Build.CANDIDATE,), found(Code.PLANNED, runs=runs))
    message = f"{len(usable)} runs beside other frameworks, compared with no reference"
    return Verdict(Status.NO_BASELINE, Reason(COMPARED, message))


def targets_here(suite: Suite) -> tuple[str, ...]:
    """The targets whose configurations are compared if none is named: those of this machine's GPUs, else the CPU."""
    on_gpu = {each.target for each in suite.cases if each.device != CPU and suite.machine.cards_of(each.target)}
    return tuple(sorted(usual_targets(on_gpu))) or (CPU,)
