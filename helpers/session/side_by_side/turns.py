"""One configuration measured in every framework that this machine has, in turn on the same cards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from helpers.common.wall_clock import utc_now
from helpers.history.results import RunResult
from helpers.history.run_folders import write_night
from helpers.judging.case.evidence import Build, Evidence, Stage
from helpers.judging.case.judge import attempts_used_up, end_without_comparison
from helpers.judging.case.verdict import Reason, Status, Verdict
from helpers.judging.finding import Code
from helpers.judging.rules.rates import rate_unit
from helpers.launch.tail import Progress
from helpers.plan.case_plan import CPU, CasePlan, SuiteCase, usual_targets
from helpers.session.measuring.case_loop import CaseResult, Runner, evidence_of, night_record, reusable_runs
from helpers.session.measuring.job_runner import RunTerms, leased_runner
from helpers.session.measuring.run_label import made_again
from helpers.session.side_by_side.comparison import ConfigurationOutcome, outcome_of
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


@dataclass
class _Turn:
    """One framework's part of a comparison: its runs so far, and its verdict once it has one."""

    plan: CasePlan
    runs: tuple[RunResult, ...] = ()
    verdict: Verdict | None = None

    @property
    def usable(self) -> int:
        return sum(run.measured for run in self.runs)


def compare_frameworks(
    suite: Suite, configuration: Configuration, on_progress: OnProgress | None = None
) -> ConfigurationOutcome:
    """Run the configuration PAIRS times in each framework (A B, B A, A B, …; fresh processes) and compare the
    figures. Every run is stored as a run of its case, but later nights learn nothing from it.

    If one framework fails, its cell stays empty, and the others go on.
    """
    return outcome_of(configuration, *_measure(suite, configuration, on_progress))


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


def _measure(
    suite: Suite, configuration: Configuration, on_progress: OnProgress | None
) -> tuple[dict[Framework, CaseResult], dict[Framework, str]]:
    """The results by framework, and why the others cannot run here."""
    turns: list[_Turn] = []
    not_here: dict[Framework, str] = {}
    for member in configuration.members:
        try:
            plan = _ONE_NODE if member.case.nodes > 1 else suite.measurer.plan(member)
        except (SuiteError, OSError) as error:
            turns.append(_Turn(CasePlan(member), verdict=_broken(error)))
            continue
        if isinstance(plan, str):
            not_here[member.case.framework] = plan
        else:
            turns.append(_Turn(plan))
    ready = [turn for turn in turns if turn.verdict is None]
    if ready:
        try:
            _take_turns(suite, ready, on_progress)
        except (SuiteError, OSError) as error:
            for turn in ready:
                turn.verdict = turn.verdict or _broken(error)
    results = {
        turn.plan.case.framework: CaseResult(turn.plan, turn.verdict, turn.runs) for turn in turns if turn.verdict
    }
    return results, not_here


def _broken(error: Exception) -> Verdict:
    return Verdict(Status.INFRA_ERROR, Reason(type(error).__name__, str(error)))


def _take_turns(suite: Suite, turns: Sequence[_Turn], on_progress: OnProgress | None) -> None:
    """Run until every framework has its runs or a reason why not. At the end the night of each is kept."""
    allowed = suite.options.allow_contention and all(suite.gate.gated(turn.plan) is None for turn in turns)
    if suite.options.resume:
        _go_on(suite, turns, allowed)
    for turn in turns:
        _judge(turn, suite.store.session)
    if any(turn.verdict is None for turn in turns):
        with _runners(suite, turns, allowed, on_progress) as runner_of:
            for number in range(PAIRS):
                # ABBA: what drifts meanwhile affects all frameworks alike.
                for turn in turns if number % 2 == 0 else reversed(turns):
                    while turn.verdict is None and turn.usable <= number:
                        run = runner_of(turn.plan).run(turn.plan, len(turn.runs), Build.CANDIDATE, Stage.SCREEN)
                        turn.runs = (*turn.runs, run)
                        _judge(turn, suite.store.session)
                        if on_progress is not None and turn.verdict is None and not run.measured:
                            on_progress(made_again(run))
    for turn in turns:
        _keep(suite, turn)


@contextlib.contextmanager
def _runners(
    suite: Suite, turns: Sequence[_Turn], allow_contention: bool, on_progress: OnProgress | None
) -> Iterator[Callable[[CasePlan], Runner]]:
    """The runners of all plans on one lease of cards, so that every framework has the same cards."""
    if suite.runner is not None:
        given = suite.runner
        yield lambda plan: given
        return
    plans = [turn.plan for turn in turns if turn.verdict is None]
    terms = RunTerms(
        allow_contention=allow_contention,
        share_machine=suite.options.share_machine,
        system=suite.system,
    )
    with leased_runner(plans[0], suite.machine, suite.store, suite.config, terms, on_progress) as runner:
        yield lambda plan: replace(runner, terms=replace(terms, data=plan.images))


def _go_on(suite: Suite, turns: Sequence[_Turn], allow_contention: bool) -> None:
    """Take equally many runs of each framework from the resumed session: half a pair is run again together with its
    other half."""
    for turn in turns:
        turn.runs = reusable_runs(turn.plan, suite.store, allow_contention)
    complete = min(turn.usable for turn in turns)
    for turn in turns:
        while turn.usable > complete:
            turn.runs = turn.runs[:-1]


def _judge(turn: _Turn, session: str) -> None:
    turn.verdict = _verdict_on(evidence_of(turn.plan, turn.runs, seed=session))


def _verdict_on(evidence: Evidence) -> Verdict | None:
    """The verdict on a case's part in a comparison; None while runs are missing. Its figures are compared with no
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
            return Verdict(Status.INFRA_ERROR, Reason(Code.NO_FIGURE.value, message))
    if len(usable) < PAIRS:
        return None
    message = f"{len(usable)} runs beside other frameworks, compared with no reference"
    return Verdict(Status.NO_BASELINE, Reason(Code.COMPARED.value, message))


def _keep(suite: Suite, turn: _Turn) -> None:
    """Keep the night of the case without a standing, so that no later night is compared with it."""
    assert turn.verdict is not None
    night = night_record(turn.plan, suite.store, turn.runs, turn.verdict, utc_now())
    write_night(suite.store.root, night)
    suite.memory.add_case(turn.runs, night)
    suite.store.add_verdict(turn.runs, turn.verdict)


def targets_here(suite: Suite) -> tuple[str, ...]:
    """The targets whose configurations are compared if none is named: those of this machine's GPUs, else the CPU."""
    on_gpu = {each.target for each in suite.cases if each.device != CPU and suite.machine.cards_of(each.target)}
    return tuple(sorted(usual_targets(on_gpu))) or (CPU,)
