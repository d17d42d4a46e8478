"""One configuration measured in every framework that this machine has, in turn on the same cards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from helpers.history.results import RunResult
from helpers.history.run_folders import write_night
from helpers.judging.evidence import Build, Evidence, Stage
from helpers.judging.judge import attempts_used_up, end_without_comparison
from helpers.judging.rates import rate_unit
from helpers.judging.verdict import Reason, Status, Verdict
from helpers.launch.tail import Progress
from helpers.machine.wall_clock import utc_now
from helpers.plan.case_plan import CPU, CasePlan, SuiteCase, usual_targets
from helpers.plan.published import PublishedFigure
from helpers.session.frameworks.comparison import COMPARED, ConfigurationOutcome, MeasuredConfiguration, outcome_of
from helpers.session.frameworks.configurations import Configuration
from helpers.session.measure import CaseResult, Runner, evidence_of, night_of, reusable_runs
from helpers.session.measuring import Measurer
from helpers.session.run_job import RunTerms, leased_runner
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
    suite: Suite, configuration: Configuration, pairs: int, on_progress: OnProgress | None = None
) -> ConfigurationOutcome:
    """Run the configuration ``pairs`` times in each framework (A B, B A, A B, …; fresh processes) and compare the
    figures. Every run is stored as a run of its case, but later nights learn nothing from it.

    If one framework fails, its cell stays empty, and the others go on.
    """
    measured = _measure(suite.measurer, configuration, pairs, on_progress)
    return outcome_of(measured, _figures(suite))


def unmeasured(suite: Suite, configuration: Configuration, reason: str) -> ConfigurationOutcome:
    """The outcome of a configuration that was not tried. ``reason`` is used if the machine itself gives none."""
    not_here = {each.case.framework: why_not(suite, each) or reason for each in configuration.members}
    return outcome_of(MeasuredConfiguration(configuration, not_here=not_here), _figures(suite))


def _figures(suite: Suite) -> tuple[PublishedFigure, ...]:
    return tuple(figure for each in suite.cases for figure in each.figures)


def can_measure(suite: Suite, configuration: Configuration) -> int:
    """The number of frameworks in which this machine can run a configuration."""
    return sum(why_not(suite, member) is None for member in configuration.members)


def why_not_compared(suite: Suite, configuration: Configuration) -> str | None:
    """Why a configuration is not compared, in one line: fewer than two of its frameworks can run here. None if two
    can."""
    if can_measure(suite, configuration) > 1:
        return None
    found: dict[str, list[str]] = {}
    for each in configuration.members:
        found.setdefault(why_not(suite, each) or NO_OTHER_FRAMEWORK, []).append(each.case.framework.value)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in found.items())


def why_not(suite: Suite, suite_case: SuiteCase) -> str | None:
    """Why this machine cannot measure the case beside the other frameworks' cases, in one line."""
    return suite.why_not(suite_case) or (_ONE_NODE if suite_case.case.nodes > 1 else None)


def _measure(
    measurer: Measurer, configuration: Configuration, pairs: int, on_progress: OnProgress | None
) -> MeasuredConfiguration:
    turns: list[_Turn] = []
    not_here: dict[Framework, str] = {}
    for member in configuration.members:
        try:
            plan = _ONE_NODE if member.case.nodes > 1 else measurer.planner.plan(member)
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
            _take_turns(measurer, ready, pairs, on_progress)
        except (SuiteError, OSError) as error:
            for turn in ready:
                turn.verdict = turn.verdict or _broken(error)
    results = {
        turn.plan.case.framework: CaseResult(turn.plan, turn.verdict, turn.runs) for turn in turns if turn.verdict
    }
    folders = {each: _folders(measurer, result) for each, result in results.items()}
    return MeasuredConfiguration(configuration, results, not_here, folders)


def _broken(error: Exception) -> Verdict:
    return Verdict(Status.INFRA_ERROR, Reason(type(error).__name__, str(error)))


def _folders(measurer: Measurer, result: CaseResult) -> tuple[str, ...]:
    return tuple(str(measurer.store.run_folder(run.case_id, run.replicate)) for run in result.runs if run.measured)


def _take_turns(measurer: Measurer, turns: Sequence[_Turn], pairs: int, on_progress: OnProgress | None) -> None:
    """Run until every framework has its runs or a reason why not. At the end the night of each is kept."""
    allowed = measurer.options.allow_contention and all(measurer.gate.gated(turn.plan) is None for turn in turns)
    if measurer.options.resume:
        _go_on(measurer, turns, allowed)
    for turn in turns:
        _judge(turn, pairs, measurer.store.session)
    if any(turn.verdict is None for turn in turns):
        with _runners(measurer, turns, allowed, on_progress) as runner_of:
            for number in range(pairs):
                # ABBA: what drifts meanwhile affects all frameworks alike.
                for turn in turns if number % 2 == 0 else reversed(turns):
                    while turn.verdict is None and turn.usable <= number:
                        _run_once(measurer, turn, runner_of(turn.plan))
                        _judge(turn, pairs, measurer.store.session)
    for turn in turns:
        _keep(measurer, turn)


def _run_once(measurer: Measurer, turn: _Turn, runner: Runner) -> None:
    run = runner.run(turn.plan, len(turn.runs), Build.CANDIDATE, Stage.SCREEN)
    turn.runs = (*turn.runs, run)
    measurer.memory().add_result(run)


@contextlib.contextmanager
def _runners(
    measurer: Measurer, turns: Sequence[_Turn], allow_contention: bool, on_progress: OnProgress | None
) -> Iterator[Callable[[CasePlan], Runner]]:
    """The runners of all plans on one lease of cards, so that every framework has the same cards."""
    if measurer.runner is not None:
        given = measurer.runner
        yield lambda plan: given
        return
    plans = [turn.plan for turn in turns if turn.verdict is None]
    terms = RunTerms(
        allow_contention=allow_contention,
        share_machine=measurer.options.share_machine,
        system=measurer.system(),
    )
    with leased_runner(plans[0], measurer.machine, measurer.store, measurer.config, terms, on_progress) as runner:
        yield lambda plan: replace(runner, terms=replace(terms, data=plan.images))


def _go_on(measurer: Measurer, turns: Sequence[_Turn], allow_contention: bool) -> None:
    """Take equally many runs of each framework from the resumed session: half a pair is run again together with its
    other half."""
    for turn in turns:
        turn.runs = reusable_runs(turn.plan, measurer.store, allow_contention)
    complete = min(turn.usable for turn in turns)
    for turn in turns:
        while turn.usable > complete:
            turn.runs = turn.runs[:-1]
        for run in turn.runs:
            # A session that was killed may have written to the disk but not to the history.
            measurer.memory().add_result(run)


def _judge(turn: _Turn, pairs: int, session: str) -> None:
    turn.verdict = verdict_on(evidence_of(turn.plan, turn.runs, seed=session), pairs)


def verdict_on(evidence: Evidence, pairs: int) -> Verdict | None:
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
            return Verdict(Status.INFRA_ERROR, Reason("no-figure", message))
    if len(usable) < pairs:
        return None
    message = f"{len(usable)} runs beside other frameworks, compared with no reference"
    return Verdict(Status.NO_BASELINE, Reason(COMPARED, message))


def _keep(measurer: Measurer, turn: _Turn) -> None:
    """Keep the night of the case without a standing, so that no later night is compared with it."""
    assert turn.verdict is not None
    night = night_of(turn.plan, measurer.store, turn.runs, turn.verdict, utc_now())
    write_night(measurer.store.root, night)
    measurer.memory().add_night(night)
    measurer.store.add_verdict(turn.runs, turn.verdict)


def targets_here(suite: Suite) -> tuple[str, ...]:
    """The targets whose configurations are compared if none is named: those of this machine's GPUs, else the CPU."""
    on_gpu = {each.target for each in suite.cases if each.device != CPU and suite.machine.cards_of(each.target)}
    return tuple(sorted(usual_targets(on_gpu))) or (CPU,)
