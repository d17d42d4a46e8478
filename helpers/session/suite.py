"""The suite as pytest and the command line use it: configuration, cases, machine and baselines in one object.

Loading reads perf.yaml and the baseline files only. Machine, installed frameworks and data are examined when the first
case is to run, and the modules that do this are imported then, so that listing the matrix takes half a second.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.history import Memory
from helpers.judging.evidence import Past
from helpers.judging.verdict import Status
from helpers.launch.launchers import CHOICES
from helpers.machine.devices import Machine, discover
from helpers.machine.environment import device_of
from helpers.machine.frameworks import BuildFinder, FrameworkBuild, build_missing
from helpers.machine.wall_clock import utc_now
from helpers.plan.case_plan import CPU, CasePlan, SuiteCase, matrix, refuse_two_targets, usual_targets
from helpers.plan.installed import CANDIDATE, REFERENCE, Installed
from helpers.plan.overrides import with_overrides
from helpers.plan.perf_yaml import Config, MachineConfig, load_config
from helpers.plan.proposals import Accepted, Proposal
from helpers.plan.published import PublishedSet, load_all_published
from helpers.plan.recorded import RecordedEntry
from helpers.session import SuiteOptions as SuiteOptions
from helpers.trainers.contract.case import DataSource
from helpers.trainers.contract.errors import HistoryError
from helpers.trainers.contract.job import CARDS_PER_PROCESS_SETTING, check_cards_per_process

if TYPE_CHECKING:
    from helpers.history.results import RunResult
    from helpers.history.run_folders import ResultStore
    from helpers.history.stored import CaseNights
    from helpers.judging.night_plan import NightPlan
    from helpers.plan.image_folder import DatasetFacts
    from helpers.session.case_details import CaseDetails
    from helpers.session.examination import ExaminationIO
    from helpers.session.explain import CaseExplanation
    from helpers.session.gate import Gate
    from helpers.session.images import CaseImages
    from helpers.session.measure import CaseResult, Judge, Runner
    from helpers.session.measuring import Measurer, OnProgress, Planner
    from helpers.session.night_time import NightTime
    from helpers.session.outcome import CaseOutcome
    from helpers.session.quiet import QuietWait
    from helpers.session.recording import RecordedBaselines

PUBLISHED_TARGETS = ("a100", "v100")
SMALL_DATASET = Path(".cache") / "imagenet-small"
GROWN_DATASET = Path(".cache") / "imagenet-grown"
CHECKED = Path(".cache") / "checked-baselines"
# A hundred runs of each of two builds, and some that are repeated.
_MOST_CALIBRATING_RUNS = 220


class Suite:
    """One loaded suite. Raises SuiteError if a file cannot be read; measuring turns errors into statuses."""

    def __init__(
        self,
        options: SuiteOptions,
        config: Config,
        published: Mapping[str, PublishedSet],
        *,
        runner: Runner | None = None,
        machine: Machine | None = None,
        memory: Memory | None = None,
        io: ExaminationIO | None = None,
    ) -> None:
        self.options = options
        self.config = config
        if options.builds:
            self._use_builds(options)
        self.cases = matrix(config, {target: each.figures for target, each in published.items()})
        self._runner = runner
        self._io = io
        self._builds = BuildFinder()
        self._cases_tonight = 1
        self._to_build = options.build_envs
        if machine is not None:
            self.machine = machine
        if memory is not None:
            self.memory = memory

    @classmethod
    def load(
        cls,
        options: SuiteOptions,
        runner: Runner | None = None,
        machine: Machine | None = None,
        memory: Memory | None = None,
    ) -> Suite:
        """Read perf.yaml and the published baselines; ``runner``, ``machine`` and ``memory`` replace the real ones in
        tests."""
        published = load_all_published(
            options.baselines_folder / "published", options.config_path.parent / CHECKED, PUBLISHED_TARGETS
        )
        config = load_config(options.config_path, CHOICES)
        if "SLURM_JOB_ID" in os.environ and not config.nodes.hosts:
            from helpers.launch.nodes.slurm import in_job, with_hosts_of_job

            if in_job(os.environ):
                config = replace(config, nodes=with_hosts_of_job(config.nodes, os.environ))
        return cls(options, config, published, runner=runner, machine=machine, memory=memory)

    @cached_property
    def machine(self) -> Machine:
        """This machine, by the name that perf.yaml gives it; with the option ``card`` with that card alone."""
        card = self.options.card
        return self._whole_machine() if card is None else self._whole_machine().with_card(card)

    def _whole_machine(self) -> Machine:
        found = discover()
        configured = self._configured(found)
        if configured is None:
            return found
        if configured.cpu_cards is not None:
            found = discover(cpu_cards=configured.cpu_cards)
        name, pool = (configured.name if configured.identity == each else "" for each in ("name", "pool"))
        return replace(found, name=name, pool=pool)

    @cached_property
    def machine_config(self) -> MachineConfig | None:
        return self._configured(self.machine)

    def _configured(self, machine: Machine) -> MachineConfig | None:
        return self.config.machine_for(platform.node(), machine.card_ids)

    @cached_property
    def _installed(self) -> Installed:
        named = self.options.builds
        return Installed(
            self.config,
            self.machine,
            self._builds,
            named[REFERENCE]["interpreter"] if REFERENCE in named else self.options.reference_env,
            named=named,
            to_build=self._to_build,
            same_build=self.options.same_build,
        )

    @cached_property
    def _planner(self) -> Planner:
        from helpers.session.measuring import Planner

        return Planner(
            self.config,
            self.machine,
            self._installed,
            self.baselines,
            self.images.of,
            self.options.overrides,
            self.options.to_record,
        )

    @cached_property
    def measurer(self) -> Measurer:
        from helpers.session.measuring import Measurer

        return Measurer(
            self.options,
            self.config,
            self.machine,
            self._planner,
            self.gate,
            self.store,
            memory=lambda: self.memory,
            system=lambda: self.system,
            runner=self._runner,
            quiet=self.quiet,
            io=self._io,
        )

    @cached_property
    def memory(self) -> Memory:
        """The history, made or migrated on first use. Entries that it cannot take are spooled beside the runs."""
        from helpers.session.suite_history import memory_of

        return memory_of(self.options, self.config)

    @cached_property
    def gate(self) -> Gate:
        from helpers.session.gate import Gate

        rules = self.machine_config.gate if self.machine_config else ()
        return Gate(self.options.gate, rules, self.options.named, self.options.record.date)

    @cached_property
    def store(self) -> ResultStore:
        from helpers.history.run_folders import ResultStore

        return ResultStore(self.options.runs_folder, self.options.session, self.options.record)

    @cached_property
    def data(self) -> DatasetFacts:
        """The checked data folder: the user's, or the small dataset, which is made on first use. Raises
        DatasetError."""
        from helpers.plan.image_folder import check_dataset
        from helpers.plan.small_dataset import make_small_dataset

        root = self.options.data_root or self.config.data.root
        if root is not None:
            return check_dataset(Path(root).expanduser().resolve())
        return make_small_dataset(self.config.path.parent / SMALL_DATASET)

    @cached_property
    def images(self) -> CaseImages:
        """Which images each case reads."""
        from helpers.plan.grown_dataset import GrownDataset
        from helpers.session.images import CaseImages

        named = (self.options.data_root or self.config.data.root) is not None
        grown = GrownDataset(self.config.path.parent / GROWN_DATASET)
        return CaseImages(self.machine, named, lambda: self.data, grown, _say_to_stderr)

    @cached_property
    def system(self) -> dict[str, dict[str, str]]:
        """The environment tables that every result of this session holds. The machine is examined once."""
        from helpers.machine.tables import session_tables

        root = self.options.data_root or self.config.data.root
        return session_tables(
            self.machine,
            self._builds,
            interpreters={each: entry.interpreter for each, entry in self.config.frameworks.items()},
            data=root or "made by the suite",
            folders={"runs": self.options.runs_folder, "data": Path(root or self.config.path.parent).expanduser()},
        )

    @cached_property
    def baselines(self) -> RecordedBaselines:
        from helpers.session.recording import RecordedBaselines

        return RecordedBaselines(self.options.baselines_folder / "recorded", self.machine)

    def prepare(self, chosen: Iterable[SuiteCase], say: Callable[[str], None] | None = None) -> str | None:
        """Check, before anything is measured, what the chosen cases need: data, recorded baselines, the reference
        build, the history, gate rules, settings that exist. Images that they need are made last, which takes minutes
        the first time; ``say`` is told how far it is. Returns one line on the gate; None without ``--gate``."""
        from helpers.plan.recipes.recipe import settings_for
        from helpers.session.suite_history import begin, begin_recorded

        chosen = tuple(chosen)
        runnable = self.expect(chosen)
        refuse_two_targets(runnable)
        self._installed.check_reference(runnable)
        recorded = {device: self.baselines.load(device) for device in sorted({case.device for case in runnable})}
        for case in runnable:
            if self.options.overrides:
                launcher = self.config.launcher_for(case.case)
                usual = settings_for(case.case, case.device, launcher=launcher)
                given = with_overrides(usual, self.options.overrides, case.case.id)
                check_cards_per_process(case.case, given.get(CARDS_PER_PROCESS_SETTING, 1))
        if any(case.case.data is not DataSource.SYNTHETIC for case in runnable):
            _ = self.data
        if runnable:
            found = ((each.target, recorded[each.device].entries.get(each.case.id)) for each in runnable)
            begin_recorded(self.options.runs_folder, [(target, entry) for target, entry in found if entry])
            begin(self.memory)
        self.gate.check(self.cases, self.config, self.machine.host)
        if self.machine.gpus and any(case.figures for case in runnable):
            self._make_images(runnable, say)
        return self.gate.summary(chosen, self.cases)

    def _make_images(self, runnable: Sequence[SuiteCase], say: Callable[[str], None] | None) -> None:
        from helpers.session.images import estimate

        images = self.images if say is None else replace(self.images, say=say)
        images.prepare(runnable)
        if line := estimate(runnable, self.machine):
            images.say(line)

    def in_order(self, cases: Iterable[SuiteCase]) -> list[SuiteCase]:
        """The cases in the order in which they are measured: those with a published figure of this card first."""
        cases = list(cases)
        if not any(case.figures for case in cases):
            return cases
        from helpers.session.images import published_first

        return published_first(cases, self.machine)

    def check_imports(self, chosen: Iterable[SuiteCase], say: Callable[[str], None]) -> None:
        """Import the builds of the chosen cases, under test and good, so that one whose import fails is refused in
        seconds. Raises BuildUnavailable. Nothing is imported with another runner than the real one."""
        if self._runner is not None:
            return
        from helpers.session.builds import refuse_not_importable

        found: dict[tuple[str, str], tuple[FrameworkBuild, Mapping[str, str]]] = {}
        for each in chosen:
            if self.why_not(each) is not None:
                continue
            for of_reference, build in enumerate((self.build(each), self._installed.reference(each))):
                if isinstance(build, FrameworkBuild):
                    record = self._installed.record(build, of_reference=bool(of_reference))
                    found.setdefault((build.framework.value, build.interpreter), (build, record))
        refuse_not_importable(found.values(), say)

    def check_programs(self, chosen: Iterable[SuiteCase], say: Callable[[str], None]) -> None:
        """Build the static programs of the chosen cases, so that a build that cannot is refused within a minute. Raises
        BuildUnavailable. Nothing is built with another runner than the real one."""
        if self._runner is not None:
            return
        from helpers.session.programs import built_ahead, refuse_broken

        by_interpreter: dict[str, list[SuiteCase]] = {}
        names = {}
        for each in chosen:
            build = self.build(each)
            if self.why_not(each) is None and isinstance(build, FrameworkBuild):
                by_interpreter.setdefault(build.interpreter, []).append(each)
                names[build.interpreter] = f"{build.distribution} {build.version}"
        for interpreter, cases in by_interpreter.items():
            refuse_broken(names[interpreter], built_ahead(cases, interpreter, say))

    def disturbance(self, chosen: Iterable[SuiteCase], say: Callable[[str], None] | None = None) -> str:
        """Why every run of the chosen cases would be INVALID just now, because others use the machine, and what the
        user can do. Empty if nobody does, and always with another runner than the real one. It first waits for them, if
        the options allow that, and tells ``say``."""
        if self._runner is not None and self._io is None:
            return ""
        runnable = [case for case in chosen if self.why_not(case) is None]
        from helpers.session.disturbance import disturbance_of

        quiet, tell = self.quiet, say or _say_to_stderr
        waits = (lambda look: look()) if quiet is None else (lambda look: quiet.wait(look, tell))
        return disturbance_of(
            runnable, self.options, self.config, self.machine, self.gate, self.store, self._io, wait=waits
        )

    @cached_property
    def quiet(self) -> QuietWait | None:
        """What this session may wait for a quiet machine; None if it does not wait."""
        if self.options.quiet_minutes is None:
            return None
        from helpers.session.quiet import QuietWait

        io = self._io
        return QuietWait(self.options.quiet_minutes, *(() if io is None else (io.clock, io.sleep)))

    def expect(self, chosen: Iterable[SuiteCase]) -> list[SuiteCase]:
        """Note how many cases this session measures in all its processes, because the error rates hold over all of them
        together. Returns those of ``chosen`` that can run here."""
        runnable = [case for case in chosen if self.why_not(case) is None]
        self._cases_tonight = max(1, len(runnable)) if self.night is None else self.night.counted
        # By now the controller has built what a worker needs.
        if self._to_build:
            self._look_again()
        return runnable

    def build_environments(self, chosen: Iterable[SuiteCase], say: Callable[[str], None]) -> None:
        """Build the missing environments of the frameworks of ``chosen``, if perf.yaml says how. Raises LaunchError."""
        build_missing([each.case.framework for each in chosen if not self.why_not(each)], self.config.frameworks, say)
        self._look_again()

    def name_builds(self, say: Callable[[str], None]) -> None:
        """Make the builds ready that the options and perf.yaml name, before anything looks at what is installed. They
        stay in use until this process ends. Raises ConfigError and BuildUnavailable (helpers/builds/naming.py)."""
        options = self.options
        if options.build is None and options.reference_build is None and not options.pinned_reference:
            return
        from helpers.session.builds import named_builds, wants_builds

        if not wants_builds(options, self.config):
            return
        # Making them takes minutes.
        self.gate.refuse_unlisted(self.config, self.machine.host)
        from helpers.builds.cache import cache_of

        self._build_cache = cache_of(self.config.path.parent, self.config.builds.most_gigabytes)
        self._use_builds(replace(options, builds=named_builds(options, self.config, self._build_cache, say)))
        self._look_again()

    def _use_builds(self, options: SuiteOptions) -> None:
        from helpers.session.builds import with_builds

        self.options, self.config = options, with_builds(self.config, options.builds)

    def _look_again(self) -> None:
        """Forget which builds were found, because there may be others by now."""
        self._to_build = False
        self._builds = BuildFinder()
        for name in ("_installed", "_planner", "measurer", "system"):
            self.__dict__.pop(name, None)

    def selection_here(self) -> tuple[frozenset[tuple[str, str]], str]:
        """The cases that run without a marker, and a line that names the selection. Under ``--gate`` they are the
        gate's cases, else the GPU cases that this machine can run (the cases for any card if its model has none), else
        the short CPU selection.
        """
        on_gpu = [case for case in self.cases if case.device != CPU and self.why_not(case) is None]
        usual = usual_targets(case.target for case in on_gpu)
        if self.options.gate:
            here = [case for case in self.cases if self.gate.rule_for(case) is not None]
            what = f"the gate's {len(here)} cases"
        elif on_gpu:
            here = [case for case in on_gpu if case.target in usual]
            what = f"the {len(here)} cases that {self.machine.device_name('gpu')} runs"
        else:
            here = [case for case in self.cases if case.short and case.target == CPU]
            what = f"the short CPU selection, {len(here)} cases"
            if self.machine.gpus:
                what += f", as no case runs on {self.machine.device_name('gpu')} with what is installed"
        left = len(self.cases) - len(here)
        return (
            frozenset(case.key for case in here),
            f"no marker given: {what}; {left} left out (-m cpu, -m gpu, -m v100 …); found {self.machine.describe()}",
        )

    def lay_out_night(self, here: Collection[tuple[str, str]]) -> NightPlan | None:
        """Tonight's plan for the cases of ``here``; None if perf.yaml does not limit the night's time.

        From now on the night's time runs, and every case is measured as planned."""
        from helpers.session.night_layout import begin_night

        if (begun := begin_night(self, here, utc_now())) is None:
            return None
        plan, time = begun
        self.options = replace(self.options, night=time.to_record())
        return plan

    @property
    def night(self) -> NightTime | None:
        """The time of tonight's plan; None for a night that is not limited."""
        if not self.options.night:
            return None
        from helpers.session.night_time import NightTime

        return NightTime.from_record(self.options.night)

    def header_lines(self) -> list[str]:
        """What is needed to reproduce the session: machine, data, files, the history and the reference build."""
        from helpers.session.builds import reference_line
        from helpers.session.suite_history import history_line

        reference = reference_line(self.options, self.config, self._installed.reference_labels)
        data = self.options.data_root or self.config.data.root or f"made by the suite in {SMALL_DATASET.parent}"
        tested = self.options.builds.get(CANDIDATE)
        build = f"build: {tested['name']} @{tested['commit'][:12]} ({tested['source_text']})" if tested else ""
        return [
            f"machine: {self.machine.describe()}",
            *([build] if build else []),
            f"session: {self.options.session} in {self.options.runs_folder}; data: {data}; config: {self.config.path}",
            f"baselines: {self.baselines.describe()}",
            f"history: {history_line(self.options, self.config)}; {reference}",
        ]

    def history_notes(self) -> tuple[str, ...]:
        """What the user must know about the history at the session's end. Entries that wait are tried once more."""
        from helpers.session.suite_history import notes_of

        return notes_of(self.memory) if "memory" in self.__dict__ else ()

    def details_of(self, outcome: CaseOutcome, command: str, session: str = "") -> CaseDetails:
        """What a page shows of a case beside its outcome; ``command`` measures it again, and ``session`` measured it if
        this session did not. What cannot be asked is named in the answer."""
        from helpers.session.case_details import CaseDetails, sources_of

        nights = self._nights_of(outcome, session or self.options.session)
        return CaseDetails(nights, sources_of(outcome, self.config), command)

    def _nights_of(self, outcome: CaseOutcome, session: str) -> CaseNights:
        from helpers.history.stored import CaseNights
        from helpers.session.case_details import NIGHTS
        from helpers.session.suite_history import is_there

        if "memory" not in self.__dict__ and not is_there(self.options, self.config):
            return CaseNights(unknown="there is no history yet")
        try:
            return self.memory.nights_so_far(outcome.case.id, outcome.target, session, NIGHTS)
        except HistoryError as error:
            return CaseNights(unknown=f"the history did not answer: {error}")

    def run_before(self, suite_case: SuiteCase) -> RunResult | None:
        """A run of the case's newest night in the history, on whatever machine; None if none is known."""
        from helpers.session.suite_history import is_there

        if not is_there(self.options, self.config):
            return None
        try:
            return self.memory.nights_so_far(suite_case.case.id, suite_case.target, "", 1).before
        except HistoryError:
            return None

    def measure(self, suite_case: SuiteCase, on_progress: OnProgress | None = None) -> CaseOutcome:
        """Run and judge one case. A failure of the machine or of a job becomes a status, never an exception."""
        return self._judged(suite_case, "", on_progress)

    def confirm(self, suite_case: SuiteCase, why: str, on_progress: OnProgress | None = None) -> CaseOutcome:
        """Go on with a case that was judged tonight, to confirm the suspicion ``why``, whatever its own runs say. The
        new verdict replaces the earlier one, in the results and in the history."""
        return self._judged(suite_case, why, on_progress)

    def history_answers(self) -> bool:
        """Whether the history answers now, after it did not."""
        from helpers.session.suite_history import answers

        return answers(self.memory)

    def judge_again(self, suite_case: SuiteCase, on_progress: OnProgress | None = None) -> CaseOutcome:
        """Judge a case of tonight again, which was judged while the history did not answer. Its runs count; more are
        made only if its earlier nights leave the answer open. The new verdict replaces the earlier one, in the results
        and in the history."""
        return self._judged(suite_case, "", on_progress, again=True)

    def explain(self, outcomes: Iterable[CaseOutcome], say: Callable[[str], None]) -> Iterator[CaseExplanation]:
        """Say which part of a step is slower in each regression, if perf.yaml allows it. No verdict changes."""
        from helpers.session.explain import explain_night

        return explain_night(self, outcomes, say)

    def recorded_entry(self, target: str, case_id: str) -> RecordedEntry | None:
        """What this machine has recorded for a case; None if nothing. Raises BaselineError."""
        return self.baselines.load(device_of(target)).entries.get(case_id)

    def propose(self, outcomes: Iterable[CaseOutcome], accepted: Sequence[Accepted] = ()) -> tuple[Proposal, ...]:
        """What ``--update-baselines`` would write for the cases of this session."""
        return self.baselines.propose(
            [each for each in outcomes if each.status is not Status.NOT_RUN],
            known_case_ids={case.case.id for case in self.cases},
            accepted=accepted,
            tolerances=self.config.tolerances,
            past_of=self._past,
            began=self.options.record.moment,
        )

    def write_baselines(self, outcomes: Iterable[CaseOutcome], proposals: Iterable[Proposal]) -> tuple[Proposal, ...]:
        """Write the proposals, each file once, and begin a segment of the history for each entry that changed;
        returns what was written. Raises BaselineError, and HistoryError once the files are written."""
        from helpers.session.suite_history import start_segments

        outcomes = tuple(outcomes)
        written = self.baselines.write(outcomes, proposals)
        start_segments(self.memory, written, {each.case.id: each.target for each in outcomes})
        return written

    def baseline_files(self, outcomes: Iterable[CaseOutcome], written: Iterable[Proposal]) -> tuple[Path, ...]:
        """The files that ``write_baselines`` has changed for these cases."""
        return self.baselines.files(outcomes, written)

    def calibrate(self, suite_case: SuiteCase, by: Judge, on_progress: OnProgress | None = None) -> CaseResult:
        """Make the runs of one case that ``by`` requests, as ``measure`` does. They are compared with nothing."""
        from helpers.session.measuring import MeasureRequest

        return self.measurer.measure(suite_case, MeasureRequest(by=by, most=_MOST_CALIBRATING_RUNS), on_progress)

    def _judged(
        self, suite_case: SuiteCase, suspicion: str, on_progress: OnProgress | None, again: bool = False
    ) -> CaseOutcome:
        from helpers.session.measuring import MeasureRequest

        night = self.night
        if night is not None and not (suspicion or again):
            from helpers.session.night_time import out_of_time

            # A session that is resumed has runs already.
            made = self.measurer.made_before(suite_case) if self.options.resume else 0
            if why := night.why_not(suite_case.key, utc_now(), made):
                return self._outcome(out_of_time(CasePlan(suite_case), why))
        request = MeasureRequest(suspicion, again=again, cases_tonight=self._cases_tonight, night=night)
        return self._outcome(self.measurer.measure(suite_case, request, on_progress))

    def _outcome(self, result: CaseResult) -> CaseOutcome:
        folders = tuple(str(self.store.run_folder(run.case_id, run.replicate)) for run in result.runs)
        return self.gate.outcome(result, folders)

    def build(self, suite_case: SuiteCase) -> FrameworkBuild | str:
        """The installed build that would run the case, or why there is none."""
        return self._installed.build(suite_case)

    def why_not(self, suite_case: SuiteCase) -> str | None:
        """Why this machine, with what is installed, cannot run the case, in one line."""
        return self._installed.why_not(suite_case)

    def _past(self, outcome: CaseOutcome, segment: Mapping[str, str]) -> Past:
        case = outcome.case
        return self.memory.past(case.id, outcome.target, segment, case.cards, self.options.session)


def _say_to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
