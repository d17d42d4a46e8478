"""One case of a session from its plan to its verdict, on cards that are its alone. A fault becomes a status."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from helpers.history import Memory
from helpers.history.run_folders import ResultStore
from helpers.judging.judge import judge
from helpers.judging.verdict import Reason, Status, Verdict
from helpers.launch.failure import FailureClass, class_of_words
from helpers.launch.peaks import Peaks
from helpers.launch.tail import Progress
from helpers.machine.devices import Card, Machine
from helpers.plan.case_plan import CPU, CasePlan, SuiteCase
from helpers.plan.image_folder import DatasetFacts
from helpers.plan.perf_yaml import Config
from helpers.session.gate import Gate
from helpers.session.leased import RunTerms, leased_runner
from helpers.session.measure import CaseResult, Judge, Runner, measure_case, not_run
from helpers.session.planning import Planner
from helpers.session.share_of_peak import ShareOfPeak
from helpers.session.suite_options import SuiteOptions
from helpers.trainers.contract.case import DataSource
from helpers.trainers.contract.errors import SuiteError

OnProgress = Callable[[Progress], None]


@dataclass(frozen=True)
class MeasureRequest:
    """How a case is to be measured."""

    # As in Evidence: why a confirmation is asked for.
    suspicion: str = ""
    # Who judges the case.
    by: Judge = judge
    # The most runs; None is the case's budget.
    most: int | None = None
    # The number of cases for which the error rates hold together.
    cases_tonight: int = 1


@dataclass(frozen=True)
class Measurer:
    """What the cases of a session share. ``runner`` replaces the real one; what is looked up late is a function."""

    options: SuiteOptions
    config: Config
    machine: Machine
    planner: Planner
    gate: Gate
    store: ResultStore
    memory: Callable[[], Memory]
    data: Callable[[], DatasetFacts]
    system: Callable[[], Mapping[str, Mapping[str, str]]]
    runner: Runner | None = None

    def measure(self, suite_case: SuiteCase, request: MeasureRequest, on_progress: OnProgress | None) -> CaseResult:
        """Run and judge one case. A fault of the machine or a job is a status, never an exception."""
        plan = CasePlan(suite_case, overrides=self.options.overrides)
        try:
            found = self.planner.plan(suite_case)
            if isinstance(found, str):
                return not_run(plan, found)
            plan = replace(found, recorded_required=self.gate.recorded_required(suite_case))
            return self._run(plan, request, on_progress)
        except (SuiteError, OSError) as error:
            return self._broken_off(plan, error)

    def _run(self, plan: CasePlan, request: MeasureRequest, on_progress: OnProgress | None) -> CaseResult:
        if self.runner is not None:
            return self._measured(plan, self.runner, request)
        terms = RunTerms(
            allow_contention=self._allows_contention(plan),
            share_machine=self.options.share_machine,
            data=None if plan.case.data is DataSource.SYNTHETIC else self.data(),
            system=self.system(),
        )
        with leased_runner(plan, self.machine, self.store, self.config, terms, on_progress) as runner:
            # Which hosts the nodes are is known only now: runs of other hosts are not gone on with.
            hosts = {**plan.environment, "nodes": runner.connected.nodes}
            result = self._measured(replace(plan, environment=hosts), runner, request)
            return self._with_share(result, runner.cards, on_progress) if self._wants_share(plan) else result

    def _wants_share(self, plan: CasePlan) -> bool:
        wanted = self.options.utilisation
        return plan.suite_case.target != CPU if wanted is None else wanted

    def _with_share(self, result: CaseResult, cards: Sequence[Card], on_progress: OnProgress | None) -> CaseResult:
        def tell(case_id: str) -> None:
            if on_progress is not None:
                on_progress(Progress(case_id, 0, "measuring the card's fastest matrix product", 0, 0, None, None))

        share = ShareOfPeak(self._peaks, self.store, self.memory(), tell)
        return share.into(result, cards, self.machine.host_id)

    @cached_property
    def _peaks(self) -> Peaks:
        folder = self.options.peaks_folder
        return Peaks(self.store.folder if folder is None else Path(folder))

    def _measured(self, plan: CasePlan, runner: Runner, request: MeasureRequest) -> CaseResult:
        return measure_case(
            plan,
            runner,
            self.store,
            self.memory(),
            resume=self.options.resume,
            allow_contention=self._allows_contention(plan),
            suspicion=request.suspicion,
            cases_tonight=request.cases_tonight,
            judge=request.by,
            most=request.most,
        )

    def _allows_contention(self, plan: CasePlan) -> bool:
        """docs/reference.md, "Contention": a disturbed result never enters a gate, whatever the command line allows."""
        return self.options.allow_contention and self.gate.gated(plan) is None

    def _broken_off(self, plan: CasePlan, error: Exception) -> CaseResult:
        """A case that ended in an error, with the runs that were on disk by then: nothing measured is lost."""
        told = str(error)
        if class_of_words(told) is FailureClass.DISK_FULL:
            told = f"{FailureClass.DISK_FULL.value}: {told}"
        try:
            runs = self.store.results(plan.case.id)
        except SuiteError as unreadable:
            runs = ()
            if str(unreadable) not in told:
                told = f"{told}; and its finished runs cannot be read: {unreadable}"
        return CaseResult(plan, Verdict(Status.INFRA_ERROR, Reason(type(error).__name__, told)), runs)
