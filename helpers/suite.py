"""The suite as pytest and the command line use it: configuration, cases, machine and baselines in one object.

Loading reads perf.yaml and the baseline files only. What the machine is, which frameworks are
installed and the data are looked up when the first case wants to run.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from helpers.baseline import PublishedSet, RecordedEntry, load_published
from helpers.baseline_update import Proposal
from helpers.case import DataSource
from helpers.config import Config, MachineConfig, load_config
from helpers.dataset import DatasetFacts, check_dataset, make_small_dataset
from helpers.devices import Machine, discover, environment_of
from helpers.errors import BaselineError, ConfigError, SuiteError
from helpers.gate import Gate
from helpers.installed import Installed, build_record
from helpers.launch.frameworks import BuildFinder
from helpers.launch.tail import Progress
from helpers.leased import RunTerms, leased_runner
from helpers.overrides import effective, with_overrides
from helpers.plan import CPU, CasePlan, SuiteCase, matrix, published_references
from helpers.recipe import settings_for
from helpers.recording import RecordedBaselines
from helpers.report.rows import CaseRow
from helpers.results import ResultStore, RunResult, read_result
from helpers.runner import inherited_variables
from helpers.session import CaseResult, Runner, measure_case, not_run
from helpers.system_report import session_tables
from helpers.verdict import Reason, Status, Verdict

PUBLISHED_TARGETS = ("a100", "v100")
# Of a run's environment, what is known before it; the rest comes from its own log.
_KNOWN_BEFORE = ("host_id", "cpu_model", "logical_cores", "cards", "driver", "power_limit_watts", "flags")

SMALL_DATASET = Path(".cache") / "imagenet-small"

OnProgress = Callable[[Progress], None]


@dataclass(frozen=True)
class SuiteOptions:
    """What the user chose. ``named`` holds the case ids given in full, which ``--gate`` judges too."""

    config_path: Path
    baselines_folder: Path
    runs_folder: Path
    session: str
    resume: bool = False
    data_root: str | None = None
    allow_contention: bool = False
    share_machine: bool = False
    gate: bool = False
    overrides: Mapping[str, Any] = field(default_factory=dict)
    named: frozenset[str] = frozenset()


class Suite:
    """One loaded suite. Raises SuiteError where a file cannot be read; measuring turns errors into statuses."""

    def __init__(
        self,
        options: SuiteOptions,
        config: Config,
        published: Mapping[str, PublishedSet],
        *,
        runner: Runner | None = None,
        machine: Machine | None = None,
    ) -> None:
        self.options = options
        self.config = config
        self.cases = matrix(config, {target: each.figures for target, each in published.items()})
        self._runner = runner
        self._builds = BuildFinder()
        if machine is not None:
            self.machine = machine

    @staticmethod
    def load(options: SuiteOptions, runner: Runner | None = None, machine: Machine | None = None) -> Suite:
        """Read perf.yaml and the published baselines; ``runner`` and ``machine`` replace the real ones in tests."""
        folder = options.baselines_folder / "published"
        files = sorted(path for path in folder.glob("*.json") if path.name != "schema.json")
        if not files:
            raise BaselineError(
                str(folder), got="no files", expected="published figures (v100.json, …)", remedy="Restore them"
            )
        published = {each.target: each for each in map(load_published, files)}
        if missing := sorted(set(PUBLISHED_TARGETS) - set(published)):
            raise BaselineError(
                str(folder), got=f"no figures for {missing[0]}", expected=f"{missing[0]}.json", remedy="Restore it"
            )
        return Suite(options, load_config(options.config_path), published, runner=runner, machine=machine)

    @cached_property
    def machine(self) -> Machine:
        return discover(cpu_cards=self.machine_config.cpu_cards if self.machine_config else None)

    @cached_property
    def machine_config(self) -> MachineConfig | None:
        return self.config.machine_for(platform.node())

    @cached_property
    def _installed(self) -> Installed:
        return Installed(self.config, self.machine, self._builds)

    @cached_property
    def gate(self) -> Gate:
        rules = self.machine_config.gate if self.machine_config else ()
        return Gate(self.options.gate, rules, self.options.named)

    @cached_property
    def store(self) -> ResultStore:
        return ResultStore(self.options.runs_folder, self.options.session)

    @cached_property
    def data(self) -> DatasetFacts:
        """The checked data folder: the user's, or the small one, made on first use. Raises DatasetError."""
        root = self.options.data_root or self.config.data.root
        if root is not None:
            return check_dataset(Path(root).expanduser().resolve())
        return make_small_dataset(self.config.path.parent / SMALL_DATASET)

    @cached_property
    def system(self) -> dict[str, dict[str, str]]:
        """The environment tables that every result of this session holds; the machine is asked once."""
        root = self.options.data_root or self.config.data.root
        return session_tables(
            self.machine,
            self._builds,
            interpreters={each: entry.interpreter for each, entry in self.config.frameworks.items()},
            data=root or "the small dataset",
            folders={"runs": self.options.runs_folder, "data": Path(root or self.config.path.parent).expanduser()},
        )

    @cached_property
    def baselines(self) -> RecordedBaselines:
        return RecordedBaselines(self.options.baselines_folder / "recorded", self.machine)

    def prepare(self, chosen: Iterable[SuiteCase]) -> str | None:
        """Check before anything is measured what a chosen case will need: data, recorded baselines,
        gate rules, settings that exist. Returns one line on the gate, None without ``--gate``."""
        chosen = tuple(chosen)
        runnable = [case for case in chosen if self.why_not(case) is None]
        self._refuse_two_targets(runnable)
        for device in sorted({case.device for case in runnable}):
            self.baselines.load(device)
        for case in runnable:
            if self.options.overrides:
                effective(settings_for(case.case, case.device), self.options.overrides, case.case.id)
        if any(case.case.data is not DataSource.SYNTHETIC for case in runnable):
            _ = self.data
        self.gate.check(self.cases, self.config.path, self.machine.host)
        return self.gate.told(chosen, self.cases)

    def selection_here(self) -> tuple[frozenset[tuple[str, str]], str]:
        """What runs without a marker: under ``--gate`` the gate's cases, else the GPU cases that this machine
        runs, else the short CPU selection.

        Also returns one line that says so and what was left out.
        """
        on_gpu = [case for case in self.cases if case.device != CPU and self.why_not(case) is None]
        if self.options.gate:
            here = [case for case in self.cases if self.gate.rule_for(case) is not None]
            what = f"the gate's {len(here)} cases"
        elif on_gpu:
            here = on_gpu
            what = f"the {len(here)} cases that {self.machine.device_name('gpu')} runs"
        else:
            here = [case for case in self.cases if case.short and case.target == CPU]
            what = f"the short CPU selection, {len(here)} cases"
            if self.machine.gpus:
                what += f", as no case runs on {self.machine.device_name('gpu')} with what is installed"
        left = len(self.cases) - len(here)
        return (
            frozenset(case.key for case in here),
            f"no marker given: {what}; {left} left out (-m cpu, -m v100, -m a100 …); found {self.machine.describe()}",
        )

    def header_lines(self) -> list[str]:
        """What reproduces the run: machine, data, files."""
        data = self.options.data_root or self.config.data.root or f"small dataset in {SMALL_DATASET}"
        return [
            f"machine: {self.machine.describe()}",
            f"session: {self.options.session} in {self.options.runs_folder}; data: {data}; config: {self.config.path}",
        ]

    def measure(self, suite_case: SuiteCase, on_progress: OnProgress | None = None) -> CaseRow:
        """Run and judge one case. A fault of the machine or a job is a status, never an exception."""
        plan = CasePlan(suite_case)
        try:
            plan, reason = self._plan(suite_case)
            result = not_run(plan, reason) if reason else self._run(plan, on_progress)
        except (SuiteError, OSError) as error:
            result = self._broken_off(plan, error)
        return self._row(result)

    def recorded_entry(self, target: str, case_id: str) -> RecordedEntry | None:
        """What this machine has recorded for a case, None without it. Raises BaselineError."""
        return self.baselines.load(CPU if target == CPU else "gpu").entries.get(case_id)

    def propose(self, rows: Iterable[CaseRow], accept_regression: str | None = None) -> tuple[Proposal, ...]:
        """What ``--update-baselines`` would write for the rows of this session."""
        return self.baselines.propose(
            [(row, self._results(row)) for row in rows if row.status != Status.NOT_RUN.value],
            known_case_ids={case.case.id for case in self.cases},
            tolerance=self.config.tolerances.recorded_for,
            accept_regression=accept_regression,
        )

    def write_baselines(self, rows: Iterable[CaseRow], proposals: Iterable[Proposal]) -> tuple[Proposal, ...]:
        """Write the proposals, each file once; returns what was written. Raises BaselineError."""
        return self.baselines.write(rows, proposals)

    def _plan(self, suite_case: SuiteCase) -> tuple[CasePlan, str | None]:
        case, device = suite_case.case, suite_case.device
        plan = CasePlan(suite_case, overrides=self.options.overrides)
        if reason := self.why_not(suite_case):
            return plan, reason
        build = self._installed.build(suite_case)
        if isinstance(build, str):
            return plan, build
        cards = self.machine.cards_of(suite_case.target)
        data = case.data.value if case.data is DataSource.SYNTHETIC else self.data.describe()
        usual = settings_for(case, device)
        overrides = effective(usual, self.options.overrides, case.id)
        settings = with_overrides(usual, overrides, case.id)
        environment = environment_of(
            self.machine,
            cards[: case.cards_per_node],
            framework=case.framework.value,
            framework_version=build.version,
            variables=inherited_variables(settings),
        ).to_mapping()
        return (
            CasePlan(
                suite_case,
                build=build_record(build),
                settings=settings,
                overrides=overrides,
                published=published_references(
                    suite_case.figures, cards[0].name, self.config.tolerances.published_for(case.id)
                ),
                recorded=self.baselines.load(device).entries.get(case.id),
                tolerance=self.config.tolerances.recorded_for(case.id),
                data=data,
                environment={name: environment[name] for name in _KNOWN_BEFORE},
            ),
            None,
        )

    def _run(self, plan: CasePlan, on_progress: OnProgress | None) -> CaseResult:
        if self._runner is not None:
            return self._measured(plan, self._runner)
        terms = RunTerms(
            allow_contention=self._allows_contention(plan),
            share_machine=self.options.share_machine,
            data=None if plan.case.data is DataSource.SYNTHETIC else self.data,
            system=self.system,
        )
        with leased_runner(plan, self.machine, self.store, self.config, terms, on_progress) as runner:
            # Which hosts the nodes are is known only now: runs of other hosts are not gone on with.
            hosts = {**plan.environment, "nodes": runner.crew.nodes}
            return self._measured(replace(plan, environment=hosts), runner)

    def _measured(self, plan: CasePlan, runner: Runner) -> CaseResult:
        allowed = self._allows_contention(plan)
        return measure_case(plan, runner, self.store, resume=self.options.resume, allow_contention=allowed)

    def _allows_contention(self, plan: CasePlan) -> bool:
        """A disturbed result never enters a gate, whatever the command line allows (house plan, "Contention")."""
        return self.options.allow_contention and self.gate.gated(plan) is None

    def _row(self, result: CaseResult) -> CaseRow:
        folders = tuple(str(self.store.run_folder(run.case_id, run.replicate)) for run in result.runs)
        return self.gate.row(result, folders)

    def _refuse_two_targets(self, chosen: Iterable[SuiteCase]) -> None:
        """Results and recorded entries are kept by case id, and one id on two kinds of card is two results."""
        seen: dict[str, str] = {}
        for case in chosen:
            other = seen.setdefault(case.case.id, case.target)
            if other != case.target:
                raise ConfigError(
                    f"case {case.case.id}",
                    got=f"two targets of this machine, {other} and {case.target}",
                    expected="one target in a session",
                    remedy=f"Choose with -m {other} or -m {case.target}",
                )

    def why_not(self, suite_case: SuiteCase) -> str | None:
        """Why this machine, with what is installed, cannot run the case, in one line."""
        return self._installed.why_not(suite_case)

    def _broken_off(self, plan: CasePlan, error: Exception) -> CaseResult:
        """A case that ended in an error, with the runs that were on disk by then: nothing measured is lost."""
        told = str(error)
        try:
            runs = self.store.results(plan.case.id)
        except SuiteError as unreadable:
            runs = ()
            if str(unreadable) != told:
                told = f"{told}; and its finished runs cannot be read: {unreadable}"
        return CaseResult(plan, Verdict(Status.INFRA_ERROR, Reason(type(error).__name__, told)), runs)

    def _results(self, row: CaseRow) -> tuple[RunResult, ...]:
        return tuple(read_result(Path(folder) / "result.json") for folder in row.run_folders)
