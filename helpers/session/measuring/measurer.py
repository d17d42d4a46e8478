"""Measures the cases of a session: each from its plan to its verdict, on cards that no other case uses meanwhile.

A failure becomes a status.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from helpers.common.wall_clock import utc_now
from helpers.history.results import CONTENDED, RunResult
from helpers.judging.case.evidence import Build
from helpers.judging.case.verdict import NeedRuns, Reason, Status, Verdict
from helpers.judging.finding import Finding
from helpers.launch.failure import DISK_FULL, failure_in
from helpers.launch.tail import Progress
from helpers.machine.framework_builds import FrameworkBuild
from helpers.plan.case_plan import CasePlan, SuiteCase, refuse_two_targets
from helpers.plan.overrides import with_overrides
from helpers.plan.recipes.recipe import settings_for
from helpers.session.measuring.case_loop import (
    BeforeRun,
    CaseResult,
    MeasureRequest,
    Runner,
    measure_case,
    not_run,
)
from helpers.session.measuring.job_runner import JobRunner, RunTerms, leased_runner
from helpers.session.measuring.planner import plan_of
from helpers.session.measuring.quiet import QuietWait
from helpers.session.measuring.run_label import RunLabel, made_again
from helpers.session.night_limit import out_of_time
from helpers.session.outcome import CaseOutcome
from helpers.session.suite import Suite, say_to_stderr
from helpers.session.suite_history import begin_recorded
from helpers.trainers.contract.case import DataSource
from helpers.trainers.contract.errors import SuiteError
from helpers.trainers.contract.job import CARDS_PER_PROCESS_SETTING, check_cards_per_process

if TYPE_CHECKING:
    from helpers.session.explain.case import CaseExplanation

OnProgress = Callable[[Progress], None]
Say = Callable[[str], None]


@dataclass
class Measurer:
    """Prepares and measures cases of ``suite``."""

    suite: Suite
    # How many cases this session measures in all its processes, because the error rates hold over all of them together.
    cases_tonight: int = 1

    def prepare(self, chosen: Iterable[SuiteCase], say: Callable[[str], None] | None = None) -> str | None:
        """Check, before anything is measured, what the chosen cases need: data, recorded baselines, the reference
        build, the history, gate rules, settings that exist. Images that they need are made last, which takes minutes
        the first time; ``say`` is told how far it is, and that the history does not answer. Returns one line on the
        gate; None without ``--gate``."""
        chosen = tuple(chosen)
        runnable = self.expect(chosen)
        refuse_two_targets(runnable)
        self.suite.installed.check_reference(runnable)
        recorded = {device: self.suite.baselines.load(device) for device in sorted({case.device for case in runnable})}
        for case in runnable:
            if self.suite.options.overrides:
                launcher = self.suite.config.launcher_for(case.case)
                usual = settings_for(case.case, case.device, launcher=launcher)
                given = with_overrides(usual, self.suite.options.overrides, case.case.id)
                check_cards_per_process(case.case, given.get(CARDS_PER_PROCESS_SETTING, 1))
        if any(case.case.data is not DataSource.SYNTHETIC for case in runnable):
            _ = self.suite.data
        if runnable:
            found = ((each.target, recorded[each.device].entries.get(each.case.id)) for each in runnable)
            begin_recorded(self.suite.options.runs_folder, [(target, entry) for target, entry in found if entry])
            if (away := self.suite.memory.start()) and say is not None:
                say(away)
        self.suite.gate.refuse_unlisted(self.suite.config, self.suite.machine.host)
        if self.suite.machine.gpus and any(case.figures for case in runnable):
            images = self.suite.images if say is None else replace(self.suite.images, say=say)
            images.prepare(runnable)
        return self.suite.gate.summary(chosen, self.suite.cases)

    def check_imports(self, chosen: Iterable[SuiteCase], say: Callable[[str], None]) -> None:
        """Import the builds of the chosen cases, under test and good, so that one whose import fails is refused in
        seconds. Raises BuildUnavailable. Nothing is imported with another runner than the real one."""
        if self.suite.runner is not None:
            return
        from helpers.session.builds import refuse_not_importable

        found: dict[tuple[str, str], tuple[FrameworkBuild, Mapping[str, str]]] = {}
        for each in chosen:
            if self.suite.why_not(each) is not None:
                continue
            for of_reference, build in enumerate(
                (self.suite.installed.build(each), self.suite.installed.reference(each))
            ):
                if isinstance(build, FrameworkBuild):
                    record = self.suite.installed.record(build, of_reference=bool(of_reference))
                    found.setdefault((build.framework.value, build.interpreter), (build, record))
        refuse_not_importable(found.values(), say)

    def check_programs(self, chosen: Iterable[SuiteCase], say: Callable[[str], None]) -> None:
        """Build the static programs of the chosen cases, so that a build that cannot is refused within a minute. Raises
        BuildUnavailable. Nothing is built with another runner than the real one."""
        if self.suite.runner is not None:
            return
        from helpers.session.programs import built_ahead, refuse_broken

        by_interpreter: dict[str, list[SuiteCase]] = {}
        names = {}
        for each in chosen:
            build = self.suite.installed.build(each)
            if self.suite.why_not(each) is None and isinstance(build, FrameworkBuild):
                by_interpreter.setdefault(build.interpreter, []).append(each)
                names[build.interpreter] = f"{build.distribution} {build.version}"
        for interpreter, cases in by_interpreter.items():
            refuse_broken(names[interpreter], built_ahead(cases, interpreter, say))

    def disturbance(self, chosen: Iterable[SuiteCase], say: Callable[[str], None] | None = None) -> str:
        """Why every run of the chosen cases would be INVALID just now, because others use the machine, and what the
        user can do. Empty if nobody does, and always with another runner than the real one. It first waits for them, if
        the options allow that, and tells ``say``."""
        suite = self.suite
        if suite.runner is not None and suite.io is None:
            return ""
        # It needs the doctor's checks, which are slow to import.
        from helpers.session.measuring.disturbance import disturbance_of

        runnable = [case for case in chosen if suite.why_not(case) is None]
        quiet, tell = self.quiet, say or say_to_stderr
        waits = (lambda look: look()) if quiet is None else (lambda look: quiet.wait(look, tell))
        return disturbance_of(runnable, suite, waits)

    def expect(self, chosen: Iterable[SuiteCase]) -> list[SuiteCase]:
        """Note how many cases this session measures in all its processes, because the error rates hold over all of them
        together. Returns those of ``chosen`` that can run here."""
        runnable = [case for case in chosen if self.suite.why_not(case) is None]
        self.cases_tonight = max(1, len(runnable))
        return runnable

    def measure(self, suite_case: SuiteCase, on_progress: OnProgress | None = None) -> CaseOutcome:
        """Run and judge one case. A failure of the machine or of a job becomes a status, never an exception."""
        if (night := self.suite.options.night) is not None and (why := night.why_not(utc_now())):
            return self._outcome(out_of_time(suite_case, why))
        return self._judged(suite_case, MeasureRequest(cases_tonight=self.cases_tonight), on_progress)

    def confirm(self, suite_case: SuiteCase, why: Finding, on_progress: OnProgress | None = None) -> CaseOutcome:
        """Go on with a case that was judged tonight, to confirm the suspicion ``why``, whatever its own runs say. The
        new verdict replaces the earlier one, in the results and in the history."""
        return self._judged(suite_case, MeasureRequest(why, cases_tonight=self.cases_tonight), on_progress)

    def explain(self, outcomes: Iterable[CaseOutcome], say: Callable[[str], None]) -> Iterator[CaseExplanation]:
        """Say which part of a step is slower in each regression, if perf.yaml allows it. No verdict changes."""
        from helpers.session.explain.case import explain_night

        return explain_night(self.suite, outcomes, say)

    def make_runs(
        self, suite_case: SuiteCase, request: MeasureRequest, on_progress: OnProgress | None = None
    ) -> CaseResult:
        """Make and judge the runs that ``request`` asks for. A failure becomes a status."""
        plan = CasePlan(suite_case, overrides=self.suite.options.overrides)
        try:
            found = self.plan(suite_case)
            if isinstance(found, str):
                return not_run(plan, found)
            plan = replace(found, recorded_required=self.suite.gate.recorded_required(suite_case))
            return self._run(plan, request, on_progress)
        except (SuiteError, OSError) as error:
            return self._broken_off(plan, error)

    def plan(self, suite_case: SuiteCase) -> CasePlan | str:
        """The case's plan, or why it cannot run here. Raises SuiteError on data, baselines and settings."""
        return plan_of(self.suite, suite_case)

    @cached_property
    def quiet(self) -> QuietWait | None:
        """What this session may wait for a quiet machine; None if it does not wait."""
        minutes, io = self.suite.options.quiet_minutes, self.suite.io
        if minutes is None:
            return None
        return QuietWait(minutes, *(() if io is None else (io.clock, io.sleep)))

    def _judged(self, suite_case: SuiteCase, request: MeasureRequest, on_progress: OnProgress | None) -> CaseOutcome:
        return self._outcome(self.make_runs(suite_case, request, on_progress))

    def _outcome(self, result: CaseResult) -> CaseOutcome:
        folders = tuple(str(self.suite.store.run_folder(run.case_id, run.replicate)) for run in result.runs)
        return self.suite.gate.outcome(result, folders)

    def _run(self, plan: CasePlan, request: MeasureRequest, on_progress: OnProgress | None) -> CaseResult:
        if self.suite.runner is not None:
            return self._measured(plan, self.suite.runner, request)
        terms = RunTerms(
            allow_contention=self._allows_contention(plan),
            share_machine=self.suite.options.share_machine,
            data=plan.images,
            system=self.suite.system,
        )
        label = RunLabel(plan, on_progress or (lambda progress: None))
        with leased_runner(plan, self.suite.machine, self.suite.store, self.suite.config, terms, label) as runner:
            # The hosts of the nodes are known only now. Runs on other hosts are not taken from a resumed session.
            hosts = {**plan.environment, "nodes": runner.connected.nodes}
            before = self._before_runs(plan, runner, label)
            return self._measured(replace(plan, environment=hosts), runner, request, before)

    def _measured(
        self, plan: CasePlan, runner: Runner, request: MeasureRequest, before_run: BeforeRun | None = None
    ) -> CaseResult:
        request = replace(
            request,
            resume=self.suite.options.resume,
            allow_contention=self._allows_contention(plan),
            before_run=before_run,
        )
        return measure_case(plan, runner, self.suite.store, self.suite.memory, request)

    def _before_runs(self, plan: CasePlan, runner: JobRunner, label: RunLabel) -> BeforeRun:
        """Labels each run's progress, and says why a run is made again. Before the first run, and before one that
        follows a contended run, it waits for a quiet machine if the session may."""
        begun: list[Build] = []

        def before(build: Build, request: NeedRuns, runs: Sequence[RunResult]) -> None:
            if runs and not runs[-1].measured:
                label.on_progress(made_again(runs[-1]))
            disturbed = bool(runs) and str(runs[-1].invalid).startswith(CONTENDED)
            if self.quiet is not None and (disturbed or not begun) and not self._allows_contention(plan):
                # It needs the doctor's checks, which are slow to import.
                from helpers.session.measuring.disturbance import disturbs_cards
                from helpers.session.measuring.examination import ExaminationIO

                device, limit = plan.suite_case.device, self.suite.config.contention.max_foreign_share
                io = self.suite.io or ExaminationIO()
                self.quiet.wait(lambda: disturbs_cards(self.suite.machine, device, runner.cards, limit, io), label.wait)
            begun.append(build)
            label.begin(build, request, len(runs))

        return before

    def _allows_contention(self, plan: CasePlan) -> bool:
        """docs/reference.md, "Contention": a disturbed result never enters a gate, whatever the command line allows."""
        return self.suite.options.allow_contention and self.suite.gate.gated(plan) is None

    def _broken_off(self, plan: CasePlan, error: Exception) -> CaseResult:
        """The result of a case that ended in an error, with the runs that were on disk by then, so that nothing
        measured is lost."""
        reason = str(error)
        if failure_in(reason) is DISK_FULL:
            reason = f"{DISK_FULL.what}: {reason}"
        try:
            runs = self.suite.store.results(plan.case.id)
        except SuiteError as unreadable:
            runs = ()
            if str(unreadable) not in reason:
                reason = f"{reason}; and its finished runs cannot be read: {unreadable}"
        return CaseResult(plan, Verdict(Status.INFRA_ERROR, Reason(type(error).__name__, reason)), runs)
