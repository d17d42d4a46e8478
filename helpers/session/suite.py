"""What a session has: configuration, cases, machine, builds, history and baselines in one object.

``measurer`` measures its cases (session/measuring), ``recorder`` records them (session/recording.py). Loading reads
perf.yaml and the baseline files only. Machine, installed frameworks and data are examined when the first case is to
run, and the modules that do this are imported then, so that listing the matrix takes half a second.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from helpers.common.files import of_everybody
from helpers.common.own_folder import own_folder
from helpers.common.wall_clock import utc_now
from helpers.common.words import counted
from helpers.judging.case.evidence import Build, CaseKey
from helpers.launch.launchers import CHOICES
from helpers.machine.devices import Machine, discover
from helpers.machine.environment import device_of
from helpers.machine.framework_builds import BuildFinder
from helpers.plan.baseline_files import BASELINES, PUBLISHED
from helpers.plan.case_plan import CPU, SuiteCase, matrix, usual_targets
from helpers.plan.installed import Installed
from helpers.plan.perf_yaml import Config, MachineConfig, load_config
from helpers.plan.published import PublishedSet, load_all_published
from helpers.plan.recorded import RecordedEntry
from helpers.session import NightLimit
from helpers.session import SuiteOptions as SuiteOptions
from helpers.trainers.contract.errors import HistoryError

if TYPE_CHECKING:
    from helpers.history.run_folders import ResultStore
    from helpers.history.session_memory import SessionMemory
    from helpers.plan.grown_dataset import GrownDataset
    from helpers.plan.image_folder import DatasetFacts
    from helpers.session.case_details import CaseDetails
    from helpers.session.gate import Gate
    from helpers.session.images import CaseImages
    from helpers.session.measuring.case_loop import Runner
    from helpers.session.measuring.examination import ExaminationIO
    from helpers.session.measuring.measurer import Measurer
    from helpers.session.outcome import CaseOutcome
    from helpers.session.recording import RecordedBaselines, Recorder

PUBLISHED_TARGETS = ("a100", "v100")
MADE_IMAGES = Path(".cache") / "imagenet-grown"


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
        memory: SessionMemory | None = None,
        io: ExaminationIO | None = None,
    ) -> None:
        self.options = options
        self.config = config
        if options.builds:
            self._use_builds(options)
        self.cases = matrix(config, {target: each.figures for target, each in published.items()})
        # In place of the real runner.
        self.runner = runner
        # With what the machine is looked at; None: the real one.
        self.io = io
        self._builds = BuildFinder()
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
        memory: SessionMemory | None = None,
    ) -> Suite:
        """Read perf.yaml and the published baselines; ``runner``, ``machine`` and ``memory`` replace the real ones in
        tests."""
        config = load_config(options.config_path, CHOICES)
        published = load_all_published(_published_in(options.baselines_folder), PUBLISHED_TARGETS)
        if "SLURM_JOB_ID" in os.environ and not config.nodes.hosts:
            from helpers.launch.nodes.slurm import in_job, with_hosts_of_job

            if in_job(os.environ):
                config = replace(config, nodes=with_hosts_of_job(config.nodes, os.environ))
        return cls(options, config, published, runner=runner, machine=machine, memory=memory)

    @cached_property
    def machine(self) -> Machine:
        """This machine, by the name that perf.yaml gives it."""
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
    def installed(self) -> Installed:
        return Installed(
            self.config,
            self.machine,
            self._builds,
            named=self.options.builds,
            same_build=self.options.same_build,
        )

    @cached_property
    def measurer(self) -> Measurer:
        from helpers.session.measuring.measurer import Measurer

        return Measurer(self)

    @cached_property
    def recorder(self) -> Recorder:
        from helpers.session.recording import Recorder

        return Recorder(self)

    @cached_property
    def memory(self) -> SessionMemory:
        """The history, made on first use. What it cannot take stays in the run folder."""
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

        root = self.options.data_root or self.config.data.root
        if root is not None:
            return check_dataset(Path(root).expanduser().resolve())
        return self._made_images.first()

    @cached_property
    def images(self) -> CaseImages:
        """Which images each case reads."""
        from helpers.session.images import CaseImages

        named = (self.options.data_root or self.config.data.root) is not None
        return CaseImages(self.machine, named, lambda: self.data, self._made_images, say_to_stderr)

    @cached_property
    def _made_images(self) -> GrownDataset:
        from helpers.plan.grown_dataset import GrownDataset

        return GrownDataset(self.config.path.parent / MADE_IMAGES)

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

    def in_order(self, cases: Iterable[SuiteCase]) -> list[SuiteCase]:
        """The cases in the order in which they are measured: those with a published figure of this card first."""
        from helpers.session.images import published_first

        return published_first(cases, self.machine)

    def name_builds(self, say: Callable[[str], None]) -> None:
        """Make the builds ready that the options and perf.yaml name, before anything looks at what is installed. They
        stay in use until this process ends. Raises ConfigError and BuildUnavailable (helpers/builds/naming.py)."""
        from helpers.builds.cache import cache_of
        from helpers.session.builds import named_builds, wants_builds

        options = self.options
        if not wants_builds(options, self.config):
            return
        # Making them takes minutes.
        self.gate.refuse_unlisted(self.config, self.machine.host)
        self._build_cache = cache_of(self.config.path.parent, self.config.builds.most_gigabytes)
        self._use_builds(replace(options, builds=named_builds(options, self.config, self._build_cache, say)))
        # There may be other builds by now.
        self._builds = BuildFinder()
        for name in ("installed", "system"):
            self.__dict__.pop(name, None)

    def _use_builds(self, options: SuiteOptions) -> None:
        from helpers.session.builds import with_builds

        self.options, self.config = options, with_builds(self.config, options.builds)

    def selection_here(self) -> tuple[frozenset[CaseKey], str]:
        """The cases that run without a marker, and a line that names the selection. Under ``--gate`` they are the
        gate's cases, else the GPU cases that this machine can run (the cases for any card if its model has none), else
        the short CPU selection.
        """
        on_gpu = [case for case in self.cases if case.device != CPU and self.why_not(case) is None]
        usual = usual_targets(case.target for case in on_gpu)
        if self.options.gate:
            here = [case for case in self.cases if self.gate.rule_for(case) is not None]
            what = f"the gate's {counted(len(here), 'case')}"
        elif on_gpu:
            here = [case for case in on_gpu if case.target in usual]
            what = f"the {counted(len(here), 'case')} that {self.machine.device_name('gpu')} runs"
        else:
            here = [case for case in self.cases if case.short and case.target == CPU]
            what = f"the short CPU selection, {counted(len(here), 'case')}"
            if self.machine.gpus:
                what += f", as no case runs on {self.machine.device_name('gpu')} with what is installed"
        left = len(self.cases) - len(here)
        return (
            frozenset(case.key for case in here),
            f"no marker given: {what}; {left} left out (-m cpu, -m gpu, -m v100 …); found {self.machine.describe()}",
        )

    def begin_night(self, here: Collection[CaseKey]) -> NightLimit | None:
        """The limit of tonight's cases ``here``, whose time runs from now on; None if perf.yaml does not limit it."""
        from helpers.session.night_limit import begin_night

        night = begin_night(self, here, utc_now())
        if night is not None:
            self.options = replace(self.options, night=night)
        return night

    def header_lines(self) -> list[str]:
        """What is needed to reproduce the session: machine, data, files, the history and the reference build."""
        from helpers.session.builds import reference_line
        from helpers.session.suite_history import history_line

        reference = reference_line(self.options, self.config)
        data = self.options.data_root or self.config.data.root or f"made by the suite in {MADE_IMAGES}"
        tested = self.options.builds.get(Build.CANDIDATE.value)
        build = f"build: {tested['name']} @{tested['commit'][:12]} ({tested['source_text']})" if tested else ""
        return [
            f"machine: {self.machine.describe()}",
            *([build] if build else []),
            f"session: {self.options.session} in {self.options.runs_folder}; data: {data}; config: {self.config.path}",
            *([f"note: {note}"] if (note := of_everybody(self.options.runs_folder)) else []),
            f"baselines: {self.baselines.describe()}",
            f"history: {history_line(self.options, self.config)}; {reference}",
        ]

    def history_notes(self) -> tuple[str, ...]:
        """What the user must know about the history at the session's end. What it lacks is tried once more."""
        return self.memory.finish() if "memory" in self.__dict__ else ()

    def history_lacks(self) -> int:
        """How many cases of this session the history does not have."""
        return self.memory.lacking(self.options.session) if "memory" in self.__dict__ else 0

    def details_of(self, outcome: CaseOutcome, command: str) -> CaseDetails:
        """What a page shows of a case beside its outcome; ``command`` measures it again. What cannot be asked is named
        in the answer."""
        from helpers.history.stored import CaseNights
        from helpers.session.case_details import NIGHTS, CaseDetails, sources_of
        from helpers.session.suite_history import is_there

        nights = CaseNights(unknown="there is no history yet")
        if "memory" in self.__dict__ or is_there(self.options, self.config):
            try:
                nights = self.memory.nights_so_far(outcome.case.id, outcome.target, self.options.session, NIGHTS)
            except HistoryError as error:
                nights = CaseNights(unknown=f"the history did not answer: {error}")
        return CaseDetails(nights, sources_of(outcome, self.config), command)

    def recorded_entry(self, target: str, case_id: str) -> RecordedEntry | None:
        """What this machine has recorded for a case; None if nothing. Raises BaselineError."""
        return self.baselines.load(device_of(target)).entries.get(case_id)

    def why_not(self, suite_case: SuiteCase) -> str | None:
        """Why this machine, with what is installed, cannot run the case, in one line."""
        return self.installed.why_not(suite_case)


def say_to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _published_in(baselines: Path) -> Path:
    """The folder of the published figures: the suite's own for a user's folder that has none."""
    own = baselines / PUBLISHED.name
    return PUBLISHED if baselines == own_folder() / BASELINES.name and not own.exists() else own
