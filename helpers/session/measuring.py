"""Takes one case of a session from its plan to its verdict, on cards that no other case uses meanwhile.

A failure becomes a status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helpers.history import Memory
from helpers.history.results import CONTENDED, RunResult
from helpers.history.run_folders import ResultStore
from helpers.judging.evidence import Build
from helpers.judging.failure_class import FailureClass
from helpers.judging.judge import judge
from helpers.judging.utilisation import UTILISATION_FACT, Peak, Utilisation, peak_precision
from helpers.judging.verdict import NeedRuns, Reason, Status, Verdict
from helpers.launch.failure import class_of_words
from helpers.launch.programs import Peaks, Probe
from helpers.launch.tail import Progress
from helpers.machine.devices import SHARED_MEMORY_REMEDY, Card, CpuCard, Machine, environment_of
from helpers.machine.wall_clock import utc_now
from helpers.plan.case_plan import CPU, CasePlan, SuiteCase, published_references
from helpers.plan.image_folder import DatasetFacts
from helpers.plan.installed import Installed
from helpers.plan.overrides import effective, with_overrides
from helpers.plan.perf_yaml import Config
from helpers.plan.recipes.recipe import settings_for
from helpers.plan.recorded import RecordedEntry
from helpers.session import SuiteOptions
from helpers.session.gate import Gate
from helpers.session.measure import BeforeRun, CaseResult, Judge, Runner, measure_case, not_run, reusable_runs
from helpers.session.night_time import NightTime, screening_runs
from helpers.session.quiet import QuietWait
from helpers.session.recording import RecordedBaselines
from helpers.session.run_job import JobRunner, RunTerms, inherited_variables, leased_runner
from helpers.session.run_label import RunLabel
from helpers.trainers.contract.case import DataSource
from helpers.trainers.contract.errors import SuiteError
from helpers.trainers.contract.frameworks import Framework

if TYPE_CHECKING:
    from helpers.session.examination import ExaminationIO

# A framework's switches for whole programs. Cases differ in them, but a single product does not depend on them.
_SWITCHES = "FLAGS_"


@dataclass(frozen=True)
class ShareOfPeak:
    """Measures peaks, or takes known ones, and writes the shares."""

    peaks: Peaks
    store: ResultStore
    # The history. It is given the runs once more, as they then are on disk.
    memory: Memory
    # Called with the case's id before a peak is measured.
    on_probe: Callable[[str], None]

    def into(self, result: CaseResult, cards: Sequence[Card], host_id: str) -> CaseResult:
        """The result with the share in the facts of every usable run of the build under test that lacks it, on disk
        too. If anything goes wrong, the reason stands there instead. The verdict does not change. One of the leased
        ``cards`` is measured for all of them."""
        plan = result.plan
        if not any(_lacks(plan, run) for run in result.runs):
            return result
        found = self._peak(plan, cards, host_id)
        runs = tuple(self._kept(plan, run, result.verdict, _of_run(run, cards[0], found)) for run in result.runs)
        return replace(result, runs=runs)

    def _peak(self, plan: CasePlan, cards: Sequence[Card], host_id: str) -> Peak | str:
        models = sorted({card.name for card in cards})
        if len(models) > 1:
            return f"its cards are of {len(models)} models ({', '.join(models)}), and one of them speaks for all"
        return self.peaks.of(probe_of(plan, cards[0], host_id), lambda: self.on_probe(plan.case.id))

    def _kept(self, plan: CasePlan, run: RunResult, verdict: Verdict, found: Peak | str) -> RunResult:
        if not _lacks(plan, run):
            return run
        with_share = replace(run, facts={**run.facts, **_facts(plan, run, found)})
        try:
            self.store.add_verdict((with_share,), verdict)
            self.memory.add_result(with_share)
        except (SuiteError, OSError) as error:
            why = f"the share of the peak could not be written: {' '.join(str(error).split())}"
            return replace(run, facts={**run.facts, **_facts(plan, run, why)})
        return with_share


def probe_of(plan: CasePlan, card: Card, host_id: str) -> Probe:
    """The product that limits the case, in the build under test and with the variables of its jobs."""
    variables: Mapping[str, Any] = plan.settings.get("environment", {})
    return Probe(
        build=plan.build,
        precision=peak_precision(plan.case.precision, plan.settings),
        device=plan.suite_case.device,
        card=card,
        host_id=host_id,
        variables={name: str(value) for name, value in variables.items() if not name.startswith(_SWITCHES)},
    )


def _of_run(run: RunResult, card: Card, found: Peak | str) -> Peak | str:
    """In a resumed session the first runs may have been on another card of the machine."""
    if isinstance(card, CpuCard) or card.id in run.environment.get("card_ids", "").split():
        return found
    return f"this run was on another card than {card.id}, which was at hand to measure the peak of"


def _lacks(plan: CasePlan, run: RunResult) -> bool:
    has_figure = isinstance(run.figures.get(plan.rule), float)
    return run.measured and run.role == Build.CANDIDATE.value and has_figure and UTILISATION_FACT not in run.facts


def _facts(plan: CasePlan, run: RunResult, found: Peak | str) -> dict[str, str]:
    share = Utilisation.of(float(run.figures[plan.rule]), plan.rule, plan.case, found)
    return share.to_facts(plan.case.model.spec.sample)


# The part of a run's environment that is known before it. The rest comes from its own log.
_KNOWN_BEFORE = (
    "host_id", "machine", "pool", "cpu_model", "logical_cores", "cards", "driver", "power_limit_watts", "flags",
)  # fmt: skip


@dataclass(frozen=True)
class Planner:
    """Makes a case ready to run on the machine: build, settings, images, references, budget."""

    config: Config
    machine: Machine
    installed: Installed
    baselines: RecordedBaselines
    # The images of a case, or why there are too few; None if it reads none.
    images: Callable[[SuiteCase], DatasetFacts | str | None]
    # The changed settings.
    overrides: Mapping[str, Any]
    # Whether the result may become the recorded figure.
    to_record: bool = False

    def plan(self, suite_case: SuiteCase) -> CasePlan | str:
        """The plan, or why the case cannot run here. Raises SuiteError on data, baselines and settings."""
        if reason := self.installed.why_not(suite_case):
            return reason
        build = self.installed.build(suite_case)
        if isinstance(build, str):
            return build
        entry = self.baselines.load(suite_case.device).entries.get(suite_case.case.id)
        reference, why_no_reference = self._reference(suite_case, entry)
        case, config = suite_case.case, self.config
        cards = self.machine.cards_of(suite_case.target)
        usual = settings_for(case, suite_case.device, launcher=config.launcher_for(case))
        overrides = effective(usual, self.overrides, case.id)
        settings = with_overrides(usual, overrides, case.id)
        if why_no_memory := self._no_shared_memory(suite_case, settings):
            return why_no_memory
        environment = environment_of(
            self.machine,
            cards[: case.cards_per_node],
            framework=case.framework.value,
            framework_version=build.version,
            variables=inherited_variables(settings),
        ).to_mapping()
        published = published_references(suite_case.figures, cards[0].name, config.tolerances.of(case.id).published)
        images = self.images(suite_case)
        if isinstance(images, str):
            return images
        return CasePlan(
            suite_case,
            build=self.installed.record(build),
            settings=settings,
            overrides=overrides,
            published=published,
            recorded=entry,
            tolerance=config.tolerances.of(case.id).recorded,
            band=config.tolerances.of(case.id).unconfirmed,
            data=case.data.value if images is None else images.describe(),
            images=images,
            environment={name: environment[name] for name in _KNOWN_BEFORE},
            reference=reference,
            why_no_reference=why_no_reference,
            budget=config.budgets.of(case.id),
            to_record=self.to_record,
        )

    def _no_shared_memory(self, suite_case: SuiteCase, settings: Mapping[str, Any]) -> str:
        """Why a case that shares memory through /dev/shm cannot run; empty if it can or does not."""
        case, problem = suite_case.case, self.machine.shared_memory_problem
        if not problem:
            return ""
        # TensorFlow's own reader has threads.
        forks = case.read_from is DataSource.NATIVE and case.framework is not Framework.TENSORFLOW
        workers = settings.get("native", {}).get("workers", 0) if forks else 0
        if workers:
            needs = f"{workers} reader worker{'s' if workers > 1 else ''}"
        elif suite_case.device != CPU and case.cards_per_node > 1:
            needs = f"NCCL on {case.cards_per_node} cards"
        else:
            return ""
        return f"{problem}, and {needs} share memory through it. {SHARED_MEMORY_REMEDY}"

    def _reference(self, suite_case: SuiteCase, entry: RecordedEntry | None) -> tuple[dict[str, str], str]:
        """The good build's identity, or why this case has none; one of them is empty."""
        found = self.installed.reference(suite_case)
        if isinstance(found, str):
            return {}, found
        record = self.installed.record(found, of_reference=True)
        why = self.installed.why_no_pairs(suite_case, record, entry.environment if entry else None)
        return ({}, why) if why else (record, "")


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True)
class MeasureRequest:
    """How a case is to be measured."""

    # As in Evidence: why a confirmation is asked for.
    suspicion: str = ""
    # Whether it goes on from tonight's runs of the case.
    again: bool = False
    # Judges the case.
    by: Judge = judge
    # The most runs; None means the case's budget.
    most: int | None = None
    # The number of cases for which the error rates hold together.
    cases_tonight: int = 1
    # The time of the night, if it is limited.
    night: NightTime | None = None


@dataclass(frozen=True)
class Measurer:
    """What the cases of a session share. A field that is found out later is a function."""

    options: SuiteOptions
    config: Config
    machine: Machine
    planner: Planner
    gate: Gate
    store: ResultStore
    memory: Callable[[], Memory]
    system: Callable[[], Mapping[str, Mapping[str, str]]]
    # Replaces the real runner.
    runner: Runner | None = None
    # What the session may wait for a quiet machine, and with what it looks; None: it does not wait, the real machine.
    quiet: QuietWait | None = None
    io: ExaminationIO | None = None

    def measure(self, suite_case: SuiteCase, request: MeasureRequest, on_progress: OnProgress | None) -> CaseResult:
        """Run and judge one case. A failure of the machine or of a job becomes a status, never an exception."""
        plan = CasePlan(suite_case, overrides=self.options.overrides)
        try:
            found = self.planner.plan(suite_case)
            if isinstance(found, str):
                return not_run(plan, found)
            plan = replace(found, recorded_required=self.gate.recorded_required(suite_case))
            return self._run(plan, request, on_progress)
        except (SuiteError, OSError) as error:
            return self._broken_off(plan, error)

    def made_before(self, suite_case: SuiteCase) -> int:
        """How many runs of the build under test alone this session has on disk and would keep."""
        try:
            plan = self.planner.plan(suite_case)
            if isinstance(plan, str):
                return 0
            return screening_runs(reusable_runs(plan, self.store, self._allows_contention(plan)))
        except (SuiteError, OSError):
            # Measuring names it, if there is time to measure.
            return 0

    def _run(self, plan: CasePlan, request: MeasureRequest, on_progress: OnProgress | None) -> CaseResult:
        if self.runner is not None:
            return self._measured(plan, self.runner, request)
        terms = RunTerms(
            allow_contention=self._allows_contention(plan),
            share_machine=self.options.share_machine,
            data=plan.images,
            system=self.system(),
        )
        label = RunLabel(plan, on_progress or (lambda progress: None))
        with leased_runner(plan, self.machine, self.store, self.config, terms, label) as runner:
            # The hosts of the nodes are known only now. Runs on other hosts are not taken from a resumed session.
            hosts = {**plan.environment, "nodes": runner.connected.nodes}
            before = self._before_runs(plan, runner, label)
            result = self._measured(replace(plan, environment=hosts), runner, request, before)
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

    def _measured(
        self, plan: CasePlan, runner: Runner, request: MeasureRequest, before_run: BeforeRun | None = None
    ) -> CaseResult:
        if request.night is not None:
            goes_on = self.options.resume or request.again or request.suspicion
            made = reusable_runs(plan, self.store, self._allows_contention(plan)) if goes_on else ()
            plan = request.night.within(plan, utc_now(), made)
        return measure_case(
            plan,
            runner,
            self.store,
            self.memory(),
            resume=self.options.resume,
            allow_contention=self._allows_contention(plan),
            suspicion=request.suspicion,
            again=request.again,
            cases_tonight=request.cases_tonight,
            judge=request.by,
            most=request.most,
            before_run=before_run,
        )

    def _before_runs(self, plan: CasePlan, runner: JobRunner, label: RunLabel) -> BeforeRun:
        """Labels each run's progress. Before the first run, and before one that follows a contended run, it waits for a
        quiet machine if the session may."""
        begun: list[Build] = []

        def before(build: Build, request: NeedRuns, runs: Sequence[RunResult]) -> None:
            disturbed = bool(runs) and str(runs[-1].invalid).startswith(CONTENDED)
            if self.quiet is not None and (disturbed or not begun) and not self._allows_contention(plan):
                # It needs the doctor's checks, which are slow to import.
                from helpers.session.disturbance import disturbs_cards
                from helpers.session.examination import ExaminationIO

                device, limit = plan.suite_case.device, self.config.contention.max_foreign_share
                io = self.io or ExaminationIO()
                self.quiet.wait(lambda: disturbs_cards(self.machine, device, runner.cards, limit, io), label.wait)
            begun.append(build)
            label.begin(build, request, len(runs))

        return before

    def _allows_contention(self, plan: CasePlan) -> bool:
        """docs/reference.md, "Contention": a disturbed result never enters a gate, whatever the command line allows."""
        return self.options.allow_contention and self.gate.gated(plan) is None

    def _broken_off(self, plan: CasePlan, error: Exception) -> CaseResult:
        """The result of a case that ended in an error, with the runs that were on disk by then, so that nothing
        measured is lost."""
        reason = str(error)
        if class_of_words(reason) is FailureClass.DISK_FULL:
            reason = f"{FailureClass.DISK_FULL.value}: {reason}"
        try:
            runs = self.store.results(plan.case.id)
        except SuiteError as unreadable:
            runs = ()
            if str(unreadable) not in reason:
                reason = f"{reason}; and its finished runs cannot be read: {unreadable}"
        return CaseResult(plan, Verdict(Status.INFRA_ERROR, Reason(type(error).__name__, reason)), runs)
