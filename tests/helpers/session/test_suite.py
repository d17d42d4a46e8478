"""The suite as a whole, without a training: what it selects, refuses before measuring, gates and records."""

from __future__ import annotations

import datetime
import shutil
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import helpers.machine.frameworks
import helpers.plan.installed
import helpers.session.measuring
import helpers.session.run_job
import helpers.session.suite
from helpers.history import default_url, open_history
from helpers.history.results import CONTENDED, MACHINE_SHARED, RunResult
from helpers.history.run_folders import ResultStore
from helpers.judging.evidence import Budget, Build, Stage
from helpers.judging.verdict import Status
from helpers.launch.nodes.connected import ConnectedNodes
from helpers.machine.devices import CpuCard, Machine
from helpers.machine.environment import Host
from helpers.machine.frameworks import BuildFinder, BuildIdentity, FrameworkBuild
from helpers.machine.nvml import Gpu
from helpers.plan.baseline_files import BASELINES
from helpers.plan.case_plan import CasePlan, SuiteCase
from helpers.plan.image_folder import DatasetFacts
from helpers.plan.perf_yaml import HistoryConfig, load_config
from helpers.plan.proposals import Proposal, ProposalKind, parse_accepted
from helpers.plan.protocols import Budgets
from helpers.plan.published import PublishedSet, load_published
from helpers.plan.recorded import load_recorded
from helpers.report.row import pairs_of, row_of
from helpers.report.scaling import scalings
from helpers.session.measure import not_run, utc_now
from helpers.session.outcome import CaseOutcome, Effect
from helpers.session.policy import gate_reason
from helpers.session.suite import Suite, SuiteOptions
from helpers.trainers.contract.errors import BaselineError, ConfigError, DatasetError, HistoryError, LaunchError
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.conftest import ENVIRONMENT
from tests.helpers.memory_double import MemoryDouble
from tests.helpers.session_double import roles

ROOT = Path(__file__).resolve().parents[3]
HOST = Host("h", "0123456789abcdef", "Linux", "6.1", "AMD EPYC", 4, 8 * 1024**3)
CPU_MACHINE = Machine(HOST, (CpuCard(0, (0,)), CpuCard(1, (1,))), gpu_note="no libnvidia-ml.so.1")
SXM2, PCIE, A100 = "Tesla V100-SXM2-32GB", "Tesla V100-PCIE-16GB", "NVIDIA A100-SXM4-40GB"
H200 = "NVIDIA H200"
PHOTOGRAPHS = DatasetFacts(Path("photographs"), 8, 2, 1e5, 500.0, 375.0, "0" * 64)
# As many as every published comparison on one node needs.
IMAGENET = DatasetFacts(Path("imagenet"), 1_281_167, 1000, 1e5, 500.0, 375.0, "1" * 64)

# A case of perf.yaml that needs no images, its protocol asking for two runs; and its neighbour.
SYNTHETIC = "paddle-resnet50v1.5-fp32-bs4-1x1-synthetic-dynamic"
DALI = "paddle-resnet50v1.5-fp32-bs4-1x1-dali-dynamic"
ONE_RUN = "paddle-resnet50v1.5-amp_o2-bs256-1x1-dali-static"
DISPUTED = "paddle-resnet50v1.5-tf32-bs256-1x8-native-static"

MakeRun = Callable[..., RunResult]


def machine_with(*names: str) -> Machine:
    gpus = tuple(Gpu(n, f"GPU-{n}", name, 32 * 1024**3, (7, 0), 300) for n, name in enumerate(names))
    return replace(CPU_MACHINE, gpus=gpus, driver="535.1", cuda_driver="12.2", gpu_note="")


@dataclass
class Builds:
    """Stands where BuildFinder stands: Paddle is installed as ``distribution``, nothing else but ``frameworks`` is.

    ``places`` is where an interpreter's packages lie (itself), ``digests`` its build's (one of its own).
    """

    distribution: str = "paddlepaddle-gpu"
    named_in: str = ""
    frameworks: tuple[Framework, ...] = (Framework.PADDLE,)
    places: Mapping[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)

    def find_identity(self, build: FrameworkBuild) -> BuildIdentity:
        name = build.interpreter
        return BuildIdentity(name, self.places.get(name, name), self.digests.get(name, f"digest of {name}"))

    def find_build(self, framework: Framework, interpreter: str | None = None) -> FrameworkBuild | str:
        if framework not in self.frameworks or not self.distribution:
            return f"{framework.value} is not installed"
        return FrameworkBuild(interpreter or "/opt/python", framework, self.distribution, "3.0.0", "abcdef")

    def find_libraries(self, build: FrameworkBuild) -> dict[str, str] | str:
        return {"python": "3.11.7"}


@dataclass
class FakeRunner:
    """Keeps each run on disk as a runner does; an answer that is an error is raised instead.

    ``usual`` is the answer to every further run of the build under test; the reference build's is always the same.
    """

    make_run: MakeRun
    store: ResultStore
    answers: list[dict[str, Any] | Exception] = field(default_factory=list)
    usual: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, int]] = field(default_factory=list)
    connected: ConnectedNodes = field(default_factory=ConnectedNodes)

    def run(self, plan: CasePlan, replicate: int, build: Build, stage: Stage) -> RunResult:
        answer = self.answers[len(self.asked)] if len(self.asked) < len(self.answers) else self.usual
        self.asked.append((plan.case.id, replicate))
        if isinstance(answer, Exception):
            raise answer
        self.store.new_run_folder(plan.case.id, replicate)
        values = answer if build is Build.CANDIDATE else {}
        result = self.result(plan, replicate, **{**roles(plan, build, stage), **values})
        self.store.write(result)
        return result

    def result(self, plan: CasePlan, replicate: int = 0, **values: Any) -> RunResult:
        made = self.make_run(plan, replicate, **values)
        return replace(made, environment={**made.environment, **plan.environment})


@dataclass
class Bench:
    """Builds suites in one folder: recorded baselines, perf.yaml and results are the test's own."""

    folder: Path
    runner: FakeRunner
    published: Mapping[str, PublishedSet]
    memory: Any = field(default_factory=MemoryDouble)

    @property
    def good_python(self) -> str:
        """The interpreter of a reference build."""
        path = self.folder / "envs" / "good" / "bin" / "python"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
        return str(path)

    @property
    def baselines(self) -> Path:
        return self.folder / "baselines"

    def options(self, gate: Sequence[dict[str, str]] = (), **changes: Any) -> SuiteOptions:
        """Options with a perf.yaml of this folder; ``gate`` are the rules in it, which turn ``--gate`` on."""
        text = (ROOT / "perf.yaml").read_text(encoding="utf-8")
        assert "machines: {}" in text
        rules = "".join(f"\n      - {rule}" for rule in gate)
        if rules:
            text = text.replace("machines: {}", f"machines:\n  here:\n    host: '*'\n    gate:{rules}")
        config = self.folder / "perf.yaml"
        config.write_text(text, encoding="utf-8")
        options = SuiteOptions(config, self.baselines, self.runner.store.root, self.runner.store.session)
        return replace(options, **{"gate": bool(rules), **changes})

    def suite(
        self,
        machine: Machine = CPU_MACHINE,
        *,
        gate: Sequence[dict[str, str]] = (),
        real_runner: bool = False,
        **changes: Any,
    ) -> Suite:
        """A suite as Suite.load builds it, without reading 110 figures for each test."""
        options = self.options(gate, **changes)
        runner = None if real_runner else self.runner
        config = load_config(options.config_path)
        suite = Suite(options, config, self.published, runner=runner, machine=machine, memory=self.memory)
        if options.data_root is None:
            suite.data = IMAGENET if machine.gpus else PHOTOGRAPHS
        return suite

    def ungated_host(self, *named: str, machine: Machine = CPU_MACHINE) -> Suite:
        """``--gate`` on a machine that perf.yaml has no gate for, with cases named on the command line."""
        options = replace(self.options(), gate=True, named=frozenset(named))
        config = load_config(options.config_path)
        suite = Suite(options, config, self.published, runner=self.runner, machine=machine, memory=self.memory)
        suite.data = IMAGENET if machine.gpus else PHOTOGRAPHS
        return suite


@pytest.fixture(scope="module")
def published() -> Mapping[str, PublishedSet]:
    return {target: load_published(BASELINES / "published" / f"{target}.json") for target in ("a100", "v100")}


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> Builds:
    found = Builds()
    monkeypatch.setattr(helpers.session.suite, "BuildFinder", lambda: found)
    monkeypatch.setattr(helpers.plan.installed, "BuildFinder", lambda named_in: replace(found, named_in=named_in))
    return found


@pytest.fixture
def bench(tmp_path: Path, make_run: MakeRun, builds: Builds, published: Mapping[str, PublishedSet]) -> Bench:
    return Bench(tmp_path, FakeRunner(make_run, ResultStore(tmp_path / "runs", "s")), published)


def case_of(suite: Suite, case_id: str, target: str = "cpu") -> SuiteCase:
    (found,) = [case for case in suite.cases if case.key == (target, case_id)]
    return found


def rule(cases: str, needs: str = "recorded", **more: str) -> dict[str, str]:
    return {"cases": cases, "needs": needs, **more}


def record(bench: Bench, case_id: str) -> None:
    """Measure a case on the CPU machine and write it as its baseline."""
    suite = bench.suite(to_record=True)
    outcome = suite.measure(case_of(suite, case_id))
    suite.write_baselines([outcome], suite.propose([outcome]))
    bench.runner.asked.clear()


# --- loading


def test_loading_reads_every_figure_and_case(bench: Bench) -> None:
    shutil.copytree(BASELINES / "published", bench.baselines / "published")
    suite = Suite.load(bench.options(), bench.runner, CPU_MACHINE, bench.memory)
    assert [case.key for case in suite.cases] == [case.key for case in bench.suite().cases]
    assert sum(len(case.figures) for case in suite.cases) == sum(len(each.figures) for each in bench.published.values())
    assert suite.machine is CPU_MACHINE
    assert row_of(suite.measure(case_of(suite, SYNTHETIC))).runs == len(bench.runner.asked) == 2


@pytest.mark.parametrize("target", ["v100", "a100"])
def test_a_published_file_that_is_missing_is_an_error(bench: Bench, target: str) -> None:
    shutil.copytree(BASELINES / "published", bench.baselines / "published")
    (bench.baselines / "published" / f"{target}.json").unlink()
    with pytest.raises(BaselineError, match=rf"{target}\.json"):
        Suite.load(bench.options(), bench.runner, CPU_MACHINE, bench.memory)


def test_a_baselines_folder_without_figures_is_an_error(bench: Bench) -> None:
    with pytest.raises(BaselineError, match="no files"):
        Suite.load(bench.options(), bench.runner, CPU_MACHINE, bench.memory)


# --- the selection without a marker


def short_selection(suite: Suite) -> frozenset[tuple[str, str]]:
    return frozenset(case.key for case in suite.cases if case.short)


def test_without_a_gpu_the_short_cpu_list_runs(bench: Bench) -> None:
    suite = bench.suite()
    here, told = suite.selection_here()
    assert here == short_selection(suite)
    assert {target for target, _ in here} == {"cpu"}
    assert "the short CPU selection, 4 cases" in told
    assert f"{len(suite.cases) - 4} left out" in told
    assert "no libnvidia-ml.so.1" in told


@pytest.mark.parametrize(("gpus", "most_cards"), [(1, 1), (8, 8)])
def test_a_v100_machine_runs_the_v100_cases_that_fit_it(bench: Bench, gpus: int, most_cards: int) -> None:
    suite = bench.suite(machine_with(*[SXM2] * gpus))
    here, told = suite.selection_here()
    expected = {
        case.key
        for case in suite.cases
        if case.target == "v100"
        and case.case.framework is Framework.PADDLE
        and case.case.nodes == 1
        and case.case.cards <= most_cards
    }
    assert here == expected
    assert expected
    assert f"the {len(expected)} cases that {SXM2} runs" in told


def test_any_other_card_runs_the_cases_for_any_card_that_fit_it(bench: Bench) -> None:
    suite = bench.suite(machine_with(H200))
    here, told = suite.selection_here()
    expected = {
        case.key
        for case in suite.cases
        if case.target == "gpu" and case.case.framework is Framework.PADDLE and case.case.cards == 1
    }
    assert here == expected
    assert expected
    assert f"the {len(expected)} cases that {H200} runs" in told


def test_a_case_for_any_card_is_not_run_beside_the_same_case_of_the_cards_model(bench: Bench, builds: Builds) -> None:
    """A recorded figure is kept by case id: two of one id in a session would be one figure of two."""
    builds.frameworks = (Framework.PADDLE, Framework.PYTORCH)
    both = "pytorch-resnet50v1.5-amp-bs256-1x1-synthetic"
    suite = bench.suite(machine_with(SXM2))
    assert suite.why_not(case_of(suite, both, "gpu")) == "this machine's V100 has this case of its own (-m v100)"
    assert suite.why_not(case_of(suite, both, "v100")) is None
    assert suite.why_not(case_of(suite, both.replace("amp", "fp32"), "gpu")) is None
    suite.prepare(suite.cases)
    assert bench.suite(machine_with(H200)).why_not(case_of(suite, both, "gpu")) is None


def test_what_is_recorded_on_any_card_is_compared_on_it_and_not_on_another(bench: Bench) -> None:
    case_id = "paddle-resnet50v1.5-bf16-bs256-1x1-synthetic-static"
    suite = bench.suite(machine_with(H200), to_record=True)
    outcome = suite.measure(case_of(suite, case_id, "gpu"))
    row = row_of(outcome)
    assert (row.status, row.target) == ("NO_BASELINE", "gpu")
    (written,) = suite.write_baselines([outcome], suite.propose([outcome]))
    assert written.kind is ProposalKind.CREATED
    again = row_of(bench.suite(machine_with(H200)).measure(case_of(suite, case_id, "gpu")))
    assert again.recorded is not None
    assert again.status == "PASS", again.reason
    other = bench.suite(machine_with("NVIDIA H100 PCIe")).measure(case_of(suite, case_id, "gpu"))
    assert other.status is Status.NO_BASELINE


@pytest.mark.parametrize("distribution", ["paddlepaddle", ""])
def test_a_gpu_without_a_gpu_build_leaves_the_short_cpu_list_and_says_so(
    bench: Bench, builds: Builds, distribution: str
) -> None:
    builds.distribution = distribution
    suite = bench.suite(machine_with(SXM2))
    here, told = suite.selection_here()
    assert here == short_selection(suite)
    assert "with what is installed" in told


@pytest.mark.parametrize("machine", [CPU_MACHINE, machine_with(SXM2), machine_with(H200)])
def test_under_the_gate_its_cases_are_selected_on_whatever_target(bench: Bench, machine: Machine) -> None:
    suite = bench.suite(machine, gate=[rule("paddle-resnet50v1.5-amp*"), rule("paddle-vgg16-*-1x2-*")])
    here, told = suite.selection_here()
    patterns = ("paddle-resnet50v1.5-amp*", "paddle-vgg16-*-1x2-*")
    expected = {case.key for case in suite.cases if any(fnmatchcase(case.case.id, each) for each in patterns)}
    assert here == expected
    assert {target for target, _ in here} == {"cpu", "v100", "a100", "gpu"}
    assert f"the gate's {len(expected)} cases" in told


def test_a_gate_rule_with_a_target_keeps_to_it(bench: Bench) -> None:
    suite = bench.suite(gate=[rule("paddle-resnet50v1.5-fp32-*", target="v100")])
    here, _ = suite.selection_here()
    assert here
    assert {target for target, _ in here} == {"v100"}


# --- what is checked before anything is measured


def test_a_sound_choice_prepares_without_measuring(bench: Bench) -> None:
    suite = bench.suite()
    assert suite.prepare([case_of(suite, SYNTHETIC)]) is None
    assert bench.runner.asked == []


@pytest.mark.parametrize("text", ["{", "", '{"schema_version": 99}', "<<<<<<< HEAD"])
def test_a_damaged_recorded_file_is_refused_before_measuring(bench: Bench, text: str) -> None:
    suite = bench.suite()
    path = suite.baselines.path("cpu")
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BaselineError, match=path.name):
        suite.prepare([case_of(suite, SYNTHETIC)])


def test_another_machines_recorded_file_is_refused_before_measuring(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    suite = bench.suite(replace(CPU_MACHINE, facts=replace(HOST, cpu_model="Xeon")))
    bench.suite().baselines.path("cpu").rename(suite.baselines.path("cpu"))
    with pytest.raises(BaselineError, match="machine_key"):
        suite.prepare([case_of(suite, SYNTHETIC)])


def test_missing_data_are_refused_before_measuring_where_a_case_reads_any(bench: Bench) -> None:
    suite = bench.suite(data_root=str(bench.folder / "nowhere"))
    with pytest.raises(DatasetError, match="nowhere"):
        suite.prepare([case_of(suite, SYNTHETIC), case_of(suite, DALI)])
    assert suite.prepare([case_of(suite, SYNTHETIC)]) is None


@pytest.mark.parametrize(
    ("overrides", "wrong"), [({"no_such": 1}, "no_such"), ({"learning_rate": "x"}, "learning_rate")]
)
def test_a_setting_that_does_not_exist_is_refused_before_measuring(
    bench: Bench, overrides: dict[str, Any], wrong: str
) -> None:
    suite = bench.suite(overrides=overrides)
    with pytest.raises(ConfigError, match=wrong):
        suite.prepare([case_of(suite, SYNTHETIC)])


def test_an_override_equal_to_the_case_s_own_value_is_none(bench: Bench) -> None:
    suite = bench.suite(overrides={"momentum": 0.9, "weight_decay": 0.001})
    suite.measure(case_of(suite, SYNTHETIC))
    results = bench.runner.store.results(SYNTHETIC)
    assert results
    assert {tuple(result.overrides.items()) for result in results} == {(("weight_decay", 0.001),)}
    assert {result.settings["weight_decay"] for result in results} == {0.001}


@pytest.mark.parametrize(
    ("overrides", "status"),
    [({"learning_rate": 0.05}, "PASS"), ({"momentum": 0}, "INCOMPARABLE"), ({"dali.threads": 3}, "INCOMPARABLE")],
)
def test_a_published_figure_is_for_settings_that_matter_as_published(
    bench: Bench, overrides: dict[str, Any], status: str
) -> None:
    suite = bench.suite(machine_with(SXM2), overrides=overrides)
    bench.runner.answers = [{"figures": {"wall-clock": 1438.0, "paddleclas-trimmed": 1438.0}}]
    row = row_of(suite.measure(case_of(suite, ONE_RUN, "v100")))
    assert [answer.status for answer in row.published] == [status]
    assert next(iter(overrides)) in row.published[0].reason


def test_what_this_machine_cannot_run_needs_no_data_and_no_settings(bench: Bench) -> None:
    suite = bench.suite(data_root=str(bench.folder / "nowhere"), overrides={"no_such": 1})
    on_gpu = [case for case in suite.cases if case.device == "gpu"]
    assert on_gpu
    assert suite.prepare(on_gpu) is None


def test_one_case_on_two_kinds_of_card_is_refused(bench: Bench) -> None:
    suite = bench.suite(machine_with(SXM2, A100))
    targets: dict[str, list[SuiteCase]] = {}
    for case in suite.cases:
        if case.case.framework is Framework.PADDLE and case.case.cards == 1 and case.device == "gpu":
            targets.setdefault(case.case.id, []).append(case)
    both = next(cases for cases in targets.values() if len(cases) == 2)
    with pytest.raises(ConfigError, match="two targets"):
        suite.prepare(both)
    assert suite.prepare(both[:1]) is None


def test_a_gate_without_rules_and_without_a_named_case_is_refused(bench: Bench) -> None:
    suite = bench.ungated_host()
    with pytest.raises(ConfigError, match="no gate for host 'h'"):
        suite.prepare([case_of(suite, SYNTHETIC)])


def test_a_named_case_is_gate_enough(bench: Bench) -> None:
    suite = bench.ungated_host(SYNTHETIC)
    assert "gate: 1 of its 1 cases" in (suite.prepare([case_of(suite, SYNTHETIC)]) or "")


@pytest.mark.parametrize(
    "pattern", [SYNTHETIC.replace("bs4", "bs5"), SYNTHETIC.upper(), "paddle-resnet51*", "resnet50", "paddle-"]
)
def test_a_gate_pattern_that_means_no_case_is_refused_with_the_nearest_ids(bench: Bench, pattern: str) -> None:
    suite = bench.suite(gate=[rule(SYNTHETIC), rule(pattern)])
    with pytest.raises(ConfigError) as caught:
        suite.prepare([case_of(suite, SYNTHETIC)])
    assert caught.value.got == pattern


def test_a_mistyped_gate_pattern_names_what_may_have_been_meant(bench: Bench) -> None:
    suite = bench.suite(gate=[rule(SYNTHETIC.replace("bs4", "bs5"))])
    with pytest.raises(ConfigError, match=f"Nearest: .*{SYNTHETIC}"):
        suite.prepare([case_of(suite, SYNTHETIC)])


def test_a_gate_rule_that_its_target_has_no_case_for_is_refused(bench: Bench) -> None:
    suite = bench.suite(gate=[rule(SYNTHETIC, target="v100")])
    with pytest.raises(ConfigError, match=SYNTHETIC):
        suite.prepare([case_of(suite, SYNTHETIC)])


# --- measuring


def test_a_case_is_measured_by_its_protocol_and_told(bench: Bench) -> None:
    suite = bench.suite()
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert bench.runner.asked == [(SYNTHETIC, 0), (SYNTHETIC, 1)]
    assert (row.status, row.effect, row.judged, row.samples_per_s) == ("NO_BASELINE", "warn", True, 100.0)
    assert [Path(folder).name for folder in row.run_folders] == ["r0", "r1"]
    assert row.framework["distribution"] == "paddlepaddle-gpu"


@pytest.mark.parametrize(
    ("machine", "case_id", "target", "told"),
    [
        (CPU_MACHINE, ONE_RUN, "v100", "found no NVIDIA GPU"),
        (machine_with(H200), ONE_RUN, "v100", H200),
        (machine_with(SXM2), ONE_RUN.replace("1x1", "1x8"), "v100", "needs 8 cards"),
        (replace(CPU_MACHINE, cpu_cards=(CpuCard(0, (0,)),)), DALI.replace("1x1", "1x2"), "cpu", "needs 2 cards"),
    ],
)
def test_a_case_that_this_machine_cannot_run_has_its_reason(
    bench: Bench, machine: Machine, case_id: str, target: str, told: str
) -> None:
    suite = bench.suite(machine)
    row = row_of(suite.measure(case_of(suite, case_id, target)))
    assert (row.status, row.effect, row.runs) == ("not run", "skip", 0)
    assert told in row.reason
    assert bench.runner.asked == []


@pytest.mark.parametrize(
    ("distribution", "told"), [("paddlepaddle", "has no GPU kernels"), ("", "paddle is not installed")]
)
def test_a_gpu_case_without_a_gpu_build_has_its_reason(
    bench: Bench, builds: Builds, distribution: str, told: str
) -> None:
    builds.distribution = distribution
    suite = bench.suite(machine_with(SXM2))
    row = row_of(suite.measure(case_of(suite, ONE_RUN, "v100")))
    assert row.status == "not run"
    assert told in row.reason


def test_pytorchs_build_for_cpus_runs_no_gpu_case(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else a GPU machine without a marker would choose cases that its trainer refuses one by one."""
    known = {"2.13.0+cpu": "the short CPU selection", "2.13.0+cu130": f"cases that {H200} runs"}
    for version, told in known.items():
        torch = FrameworkBuild("/python", Framework.PYTORCH, "torch", version)
        monkeypatch.setattr(
            BuildFinder,
            "find_build",
            lambda self, framework, path=None, torch=torch: torch if framework is Framework.PYTORCH else "not here",
        )
        options = SuiteOptions(ROOT / "perf.yaml", ROOT / "baselines", tmp_path, "s")
        assert told in Suite.load(options, machine=machine_with(H200)).selection_here()[1]


def test_the_cpu_build_runs_the_cpu_cases(bench: Bench, builds: Builds) -> None:
    builds.distribution = "paddlepaddle"
    suite = bench.suite(machine_with(SXM2))
    assert row_of(suite.measure(case_of(suite, SYNTHETIC))).status == "NO_BASELINE"


def test_an_error_while_measuring_is_a_row_with_the_runs_that_were_finished(bench: Bench) -> None:
    bench.runner.answers = [{"wall_seconds": 12.0}, LaunchError("job", got="no port", expected="a free port")]
    suite = bench.suite()
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert (row.status, row.effect, row.code) == ("INFRA_ERROR", "error", "LaunchError")
    assert "a free port" in row.reason
    assert (row.samples_per_s, row.runs, row.wall_seconds) == (100.0, 1, 12.0)
    assert [Path(folder).name for folder in row.run_folders] == ["r0"]


def test_data_that_vanish_before_a_case_are_an_infra_error_of_it(bench: Bench) -> None:
    suite = bench.suite(data_root=str(bench.folder / "nowhere"))
    row = row_of(suite.measure(case_of(suite, DALI)))
    assert (row.status, row.code) == ("INFRA_ERROR", "DatasetError")
    assert bench.runner.asked == []


def test_a_recorded_file_that_is_damaged_meanwhile_is_an_infra_error(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    suite = bench.suite()
    suite.baselines.path("cpu").write_text("{", encoding="utf-8")
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert (row.status, row.code) == ("INFRA_ERROR", "BaselineError")
    assert bench.runner.asked == []


def test_resuming_takes_up_what_is_on_disk(bench: Bench) -> None:
    bench.suite().measure(case_of(bench.suite(), SYNTHETIC))
    bench.runner.asked.clear()
    suite = bench.suite(resume=True)
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert (bench.runner.asked, row.resumed, row.runs) == ([], 2, 2)


def test_a_damaged_result_of_a_resumed_session_is_an_infra_error_that_names_it(bench: Bench) -> None:
    bench.suite().measure(case_of(bench.suite(), SYNTHETIC))
    (damaged, _) = sorted(bench.suite().store.folder.glob("*/r*/result.json"))
    damaged.write_text("{", encoding="utf-8")
    suite = bench.suite(resume=True)
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert row.status == "INFRA_ERROR"
    assert str(damaged) in row.reason


@pytest.mark.parametrize(
    "other",
    [
        replace(CPU_MACHINE, facts=replace(HOST, host_id="f" * 16)),
        replace(CPU_MACHINE, facts=replace(HOST, cpu_model="Xeon")),
        replace(CPU_MACHINE, facts=replace(HOST, logical_cores=64)),
        replace(CPU_MACHINE, cpu_cards=(CpuCard(0, (0, 1)),)),
    ],
)
def test_resuming_on_another_machine_measures_again(bench: Bench, other: Machine) -> None:
    bench.suite().measure(case_of(bench.suite(), SYNTHETIC))
    bench.runner.asked.clear()
    suite = bench.suite(other, resume=True)
    assert suite.measure(case_of(suite, SYNTHETIC)).resumed == 0
    assert len(bench.runner.asked) == 2


def test_resuming_with_other_variables_of_the_shell_measures_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.suite().measure(case_of(bench.suite(), SYNTHETIC))
    bench.runner.asked.clear()
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    suite = bench.suite(resume=True)
    assert suite.measure(case_of(suite, SYNTHETIC)).resumed == 0
    assert len(bench.runner.asked) == 2


def test_resuming_on_other_hosts_measures_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = SimpleNamespace(nodes="a + b")
    bench.runner.connected = hosts  # type: ignore[assignment]
    monkeypatch.setattr(helpers.session.measuring, "leased_runner", lambda *_: nullcontext(bench.runner))
    resumed = []
    for nodes in ("a + b", "a + b", "a + c"):
        hosts.nodes = nodes
        suite = bench.suite(real_runner=True, resume=True)
        resumed.append(suite.measure(case_of(suite, SYNTHETIC)).resumed)
    assert resumed == [0, 2, 0]


# --- the gate


def test_a_gated_case_that_equals_its_record_passes(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    suite = bench.suite(gate=[rule("paddle-*-synthetic-*")])
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert (row.status, row.effect, row.judged) == ("PASS", "pass", True)


@pytest.mark.parametrize("pattern", [SYNTHETIC, "paddle-*-synthetic-*", "*", "paddle-resnet50v1.[5]-*-bs?-1x1-*"])
def test_a_gate_pattern_is_a_shell_pattern(bench: Bench, pattern: str) -> None:
    suite = bench.suite(gate=[rule(pattern)])
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert (row.status, row.effect, row.judged) == ("NO_BASELINE", "fail", True)
    assert row.reason.startswith("the gate does not let NO_BASELINE pass (needs: recorded); ")


@pytest.mark.parametrize("rules", [[rule(DALI)], [rule("paddle-resnet50*", target="v100")]])
def test_a_case_outside_the_gate_is_told_and_cannot_fail_it(bench: Bench, rules: list[dict[str, str]]) -> None:
    record(bench, SYNTHETIC)
    bench.runner.usual = {"samples_per_s": 85.0}
    suite = bench.suite(gate=rules, reference_env=bench.good_python)
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert (row.status, row.effect, row.judged) == ("REGRESSION", "warn", False)


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("needs", ["published", "both"])
def test_a_gated_case_without_the_published_figure_it_needs_fails_and_says_so(
    bench: Bench, needs: str, recorded: bool
) -> None:
    if recorded:
        record(bench, SYNTHETIC)
    suite = bench.suite(gate=[rule("paddle-*", needs)])
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert (row.status, row.effect) == ("PASS" if recorded else "NO_BASELINE", "fail")
    assert "needs a published figure" in row.reason


@pytest.mark.parametrize(("card", "effect"), [(SXM2, "pass"), (PCIE, "fail")])
def test_a_published_figure_counts_only_on_its_own_card(bench: Bench, card: str, effect: str) -> None:
    suite = bench.suite(machine_with(card), gate=[rule(ONE_RUN, "published", target="v100")])
    case = case_of(suite, ONE_RUN, "v100")
    bench.runner.answers = [
        {"figures": {**dict.fromkeys((each.rule for each in case.figures), 1e6), "wall-clock": 1e6}}
    ]
    row = row_of(suite.measure(case))
    assert (row.status, row.effect) == ("PASS" if effect == "pass" else "NO_BASELINE", effect)
    assert ("recorded: none; record it: pytest" in row.reason) is (effect == "pass")
    assert ("needs a published figure" in row.reason) is (effect == "fail")


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize(
    ("needs", "status"), [("published", "PASS"), ("recorded", "NO_BASELINE"), ("both", "NO_BASELINE")]
)
def test_what_perf_yaml_requires_of_a_case_is_required_with_and_without_gate(
    bench: Bench, needs: str, status: str, gate: bool
) -> None:
    suite = bench.suite(machine_with(SXM2), gate=[rule(ONE_RUN, needs, target="v100")])
    suite.gate = replace(suite.gate, enabled=gate)
    case = case_of(suite, ONE_RUN, "v100")
    bench.runner.answers = [
        {"figures": {**dict.fromkeys((each.rule for each in case.figures), 1e6), "wall-clock": 1e6}}
    ]
    row = row_of(suite.measure(case))
    assert (row.status, row.effect) == (status, "pass" if status == "PASS" else "fail" if gate else "warn")


def test_a_disputed_figure_is_not_the_one_that_a_gate_needs(bench: Bench) -> None:
    suite = bench.suite(machine_with(*[A100] * 8), gate=[rule(DISPUTED, "published")])
    case = case_of(suite, DISPUTED, "a100")
    bench.runner.answers = [{"figures": {"paddleclas-trimmed": 1e6, "wall-clock": 1e6}}]
    row = row_of(suite.measure(case))
    assert (row.effect, [each.sets_status for each in row.published]) == ("fail", [False])
    assert "needs a published figure" in row.reason


@pytest.mark.parametrize("recorded", [True, False])
def test_a_named_case_without_a_published_figure_needs_the_recorded_one(bench: Bench, recorded: bool) -> None:
    if recorded:
        record(bench, SYNTHETIC)
    row = row_of(bench.ungated_host(SYNTHETIC).measure(case_of(bench.suite(), SYNTHETIC)))
    assert (row.status, row.effect) == (("PASS", "pass") if recorded else ("NO_BASELINE", "fail"))
    assert ("(needs: recorded)" in row.reason) is not recorded


@pytest.mark.parametrize(("card", "needs"), [(SXM2, "published"), (PCIE, "recorded")])
def test_a_named_case_needs_the_published_figure_where_one_decides_here(bench: Bench, card: str, needs: str) -> None:
    suite = bench.ungated_host(ONE_RUN, machine=machine_with(card))
    case = case_of(suite, ONE_RUN, "v100")
    answer = {"figures": {**dict.fromkeys((each.rule for each in case.figures), 1e6), "wall-clock": 1e6}}
    bench.runner.answers = [answer]
    row = row_of(suite.measure(case))
    assert (row.status, row.effect) == (("PASS", "pass") if needs == "published" else ("NO_BASELINE", "fail"))
    # What the gate says that it needed where the case is no clear pass.
    plan = suite._planner.plan(case)
    assert isinstance(plan, CasePlan)
    gated = suite.gate.gated(plan)
    assert gated is not None
    assert gate_reason(Status.INCOMPARABLE, gated) == f"the gate does not let INCOMPARABLE pass (needs: {needs})"


def test_a_case_named_in_full_is_judged_and_others_are_not(bench: Bench) -> None:
    suite = bench.ungated_host(SYNTHETIC)
    named, other = (suite.measure(case_of(suite, case_id)) for case_id in (SYNTHETIC, DALI))
    assert (named.effect, named.judged) == (Effect.FAIL, True)
    assert (other.effect, other.judged) == (Effect.WARN, False)


def test_a_gated_case_that_did_not_run_fails(bench: Bench) -> None:
    suite = bench.suite(gate=[rule(ONE_RUN)])
    row = row_of(suite.measure(case_of(suite, ONE_RUN, "v100")))
    assert (row.status, row.effect, row.judged) == ("not run", "fail", True)
    assert "found no NVIDIA GPU" in row.reason


@pytest.mark.parametrize(
    ("rules", "allowed", "taken_up"),
    [((), True, 2), ((), False, 0), ((rule("*"),), True, 0), ((rule(DALI),), True, 2), ((rule(DALI),), False, 0)],
)
def test_a_contended_run_never_enters_a_gate(
    bench: Bench, rules: tuple[dict[str, str], ...], allowed: bool, taken_up: int
) -> None:
    bench.runner.answers = [{"marks": (CONTENDED,)}, {"marks": (CONTENDED,)}]
    bench.suite(allow_contention=True).measure(case_of(bench.suite(), SYNTHETIC))
    suite = bench.suite(gate=rules, resume=True, allow_contention=allowed)
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert row.resumed == taken_up
    assert bool(row.marks) is bool(taken_up)


@pytest.mark.parametrize("share_machine", [False, True])
@pytest.mark.parametrize(("rules", "allows"), [((), True), ((rule("*"),), False), ((rule(DALI),), True)])
def test_the_real_runner_gets_the_leased_cards_and_is_told_what_is_allowed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, rules: tuple[dict[str, str], ...], allows: bool, share_machine: bool
) -> None:
    leased: list[Any] = []
    given: list[dict[str, Any]] = []

    def lease(cards: Any, count: int, what: str, *, exclusive_machine: bool, **others: Any) -> Any:
        leased.append((cards, count, what, exclusive_machine))
        return nullcontext(SimpleNamespace(cards=cards[:count]))

    def runner(**values: Any) -> FakeRunner:
        given.append(values)
        return bench.runner

    monkeypatch.setattr(helpers.session.run_job, "Leases", lambda folder: SimpleNamespace(lease=lease))
    monkeypatch.setattr(helpers.session.run_job, "default_folder", lambda host_id: bench.folder / host_id)
    monkeypatch.setattr(helpers.session.run_job, "JobRunner", runner)
    suite = bench.suite(gate=rules, real_runner=True, allow_contention=True, share_machine=share_machine)
    suite.measure(case_of(suite, SYNTHETIC))
    assert leased == [(CPU_MACHINE.cpu_cards, 1, SYNTHETIC, not share_machine)]
    (values,) = given
    assert (values["allow_contention"], values["machine_shared"]) == (allows, share_machine)
    assert (values["cards"], values["machine"], values["data"]) == (CPU_MACHINE.cpu_cards[:1], CPU_MACHINE, None)
    assert values["system"]["CPU"]["CPU"] == f"{CPU_MACHINE.facts.cpu_model} * {CPU_MACHINE.facts.logical_cores}"


def test_the_environment_tables_are_made_once_a_session(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []

    def tables(*_: Any, **values: Any) -> dict[str, dict[str, str]]:
        calls.append(values)
        return {"CPU": {"CPU": "x"}}

    monkeypatch.setattr(helpers.session.suite, "session_tables", tables)
    suite = bench.suite()
    assert suite.system is suite.system
    (values,) = calls
    assert values["folders"]["runs"] == suite.options.runs_folder


# --- recorded baselines


def kinds(suite: Suite, rows: Sequence[CaseOutcome], *reasons: str) -> list[tuple[str, ProposalKind]]:
    return [(each.case_id, each.kind) for each in suite.propose(rows, parse_accepted(reasons))]


def test_a_first_result_is_proposed_written_and_then_compared_with(bench: Bench) -> None:
    suite = bench.suite(to_record=True)
    outcome = suite.measure(case_of(suite, SYNTHETIC))
    proposals = suite.propose([outcome])
    assert [(each.case_id, each.kind) for each in proposals] == [(SYNTHETIC, ProposalKind.CREATED)]
    path = suite.baselines.path("cpu")
    assert not path.exists()
    suite.write_baselines([outcome], proposals)
    entry = load_recorded(path, CPU_MACHINE.machine_key("cpu")).entries[SYNTHETIC]
    assert (entry.samples_per_s, entry.replicates) == (100.0, (100.0,) * 3)
    assert row_of(bench.suite().measure(case_of(suite, SYNTHETIC))).status == "PASS"


@pytest.mark.parametrize("mark", [CONTENDED, MACHINE_SHARED])
def test_a_marked_result_is_refused_and_never_written(bench: Bench, mark: str) -> None:
    bench.runner.answers = [{}, {"marks": (mark,)}]
    suite = bench.suite(allow_contention=True)
    outcome = suite.measure(case_of(suite, SYNTHETIC))
    (proposal,) = suite.propose([outcome])
    assert proposal.kind is ProposalKind.REFUSED
    assert mark in proposal.reason
    assert suite.write_baselines([outcome], [proposal]) == () or not suite.baselines.load("cpu").entries


def test_a_case_that_broke_off_is_refused_and_one_that_did_not_run_is_left_alone(bench: Bench) -> None:
    bench.runner.answers = [{"failure": "exit 137", "figures": {}}]
    suite = bench.suite()
    crashed = suite.measure(case_of(suite, SYNTHETIC))
    skipped = suite.measure(case_of(suite, ONE_RUN, "v100"))
    assert kinds(suite, [crashed, skipped]) == [(SYNTHETIC, ProposalKind.REFUSED)]


def test_a_slower_result_is_refused_without_a_reason(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    bench.runner.usual = {"samples_per_s": 85.0}
    suite = bench.suite(reference_env=bench.good_python, to_record=True)
    outcome = suite.measure(case_of(suite, SYNTHETIC))
    row = row_of(outcome)
    assert (row.status, row.effect) == ("REGRESSION", "fail")
    assert kinds(suite, [outcome]) == [(SYNTHETIC, ProposalKind.REFUSED)]
    assert kinds(suite, [outcome], f"{SYNTHETIC}=the data grew") == [(SYNTHETIC, ProposalKind.UPDATED)]


def test_a_figure_between_the_good_build_and_what_was_accepted_is_no_improvement(bench: Bench) -> None:
    """Good build 100, entry 105, tonight 102: IMPROVEMENT +2.1%, and 105 → 102 was written as "confirmed faster"."""
    bench.runner.usual = {"samples_per_s": 105.0}
    record(bench, SYNTHETIC)
    bench.runner.usual = {"samples_per_s": 102.0}
    suite = bench.suite(reference_env=bench.good_python, to_record=True)
    outcome = suite.measure(case_of(suite, SYNTHETIC))
    row = row_of(outcome)
    assert row.status not in ("IMPROVEMENT", "PASS")
    (proposal,) = suite.propose([outcome])
    assert proposal.kind is ProposalKind.REFUSED
    assert f'--accept-regression "{SYNTHETIC}=REASON"' in proposal.reason
    suite.write_baselines([outcome], [proposal])
    assert suite.baselines.load("cpu").entries[SYNTHETIC].samples_per_s == 105.0


def test_a_slower_setting_of_the_shell_does_not_become_the_baseline_by_itself(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NCCL_P2P_DISABLE=1 in the shell wrote 105 → 80, "updated: new segment"."""
    bench.runner.usual = {"samples_per_s": 105.0}
    record(bench, SYNTHETIC)
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    bench.runner.usual = {"samples_per_s": 80.0}
    suite = bench.suite(to_record=True)
    outcome = suite.measure(case_of(suite, SYNTHETIC))
    row = row_of(outcome)
    assert row.status == "INCOMPARABLE"
    (refused,) = suite.propose([outcome])
    assert refused.kind is ProposalKind.REFUSED
    assert refused.reason.startswith("new segment: flags ")
    assert "'NCCL_P2P_DISABLE=1" in refused.reason
    assert "lower: -23.8% against the recorded 105.00 images/s" in refused.reason
    assert f'--accept-regression "{SYNTHETIC}=REASON"' in refused.reason
    suite.write_baselines([outcome], [refused])
    assert suite.baselines.load("cpu").entries[SYNTHETIC].samples_per_s == 105.0
    (accepted,) = suite.propose([outcome], parse_accepted(["paddle-*-synthetic-*=the cards' link is broken for good"]))
    suite.write_baselines([outcome], [accepted])
    entry = suite.baselines.load("cpu").entries[SYNTHETIC]
    assert (entry.samples_per_s, entry.provenance.reason) == (
        80.0,
        "accepted regression: the cards' link is broken for good",
    )


def test_a_figure_by_another_protocol_is_not_comparable_and_says_in_what(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    suite = bench.suite()
    case = case_of(suite, SYNTHETIC)
    row = row_of(suite.measure(replace(case, protocol=replace(case.protocol, warmup_steps=20, window_steps=60))))
    assert row.status == "INCOMPARABLE"
    assert "protocol warmup_steps: 9 → 20" in row.reason
    assert "protocol window_steps: 5 → 60" in row.reason


def test_a_case_below_its_published_figure_is_no_baseline_without_a_reason(bench: Bench) -> None:
    bench.runner.usual = {"figures": dict.fromkeys(("wall-clock", "median-step", "paddleclas-trimmed"), 100.0)}
    suite = bench.suite(machine_with(SXM2), to_record=True)
    outcome = suite.measure(case_of(suite, ONE_RUN, "v100"))
    row = row_of(outcome)
    assert (row.status, row.runs) == ("BELOW_PUBLISHED", 3)
    (refused,) = suite.propose([outcome])
    assert refused.kind is ProposalKind.REFUSED
    assert refused.reason.startswith("BELOW_PUBLISHED: ")
    assert kinds(suite, [outcome], f"{ONE_RUN}=a V100 at 250 W") == [(ONE_RUN, ProposalKind.CREATED)]


def test_runs_far_apart_are_no_baseline_without_a_reason(bench: Bench) -> None:
    """2.652 and 1.691 images/s were recorded without a word, and a PASS beside them claimed to see 5.5%."""
    bench.runner.answers = [{"samples_per_s": rate} for rate in (2.652, 1.691, 1.8)]
    suite = bench.suite(to_record=True)
    outcome = suite.measure(case_of(suite, SYNTHETIC))
    (refused,) = suite.propose([outcome])
    assert refused.kind is ProposalKind.REFUSED
    assert "its 3 runs (2.652, 1.691, 1.8 images/s) scatter 6.8 times as far as is usual" in refused.reason
    assert kinds(suite, [outcome], f"{SYNTHETIC}=it is so") == [(SYNTHETIC, ProposalKind.CREATED)]


def test_what_ran_less_than_three_times_is_no_entry(bench: Bench) -> None:
    suite = bench.suite()
    outcome = suite.measure(case_of(suite, SYNTHETIC))
    row = row_of(outcome)
    (proposal,) = suite.propose([outcome])
    assert (proposal.kind, row.runs) == (ProposalKind.REFUSED, 2)
    assert proposal.reason.startswith("2 runs, an entry rests on 3 or more")


def test_each_device_has_its_own_file(bench: Bench) -> None:
    fast = dict.fromkeys(("wall-clock", "median-step", "paddleclas-trimmed"), 1e6)
    bench.runner.answers, bench.runner.usual = [{}, {}, {}], {"figures": fast}
    suite = bench.suite(machine_with(SXM2), to_record=True)
    rows = [suite.measure(case_of(suite, SYNTHETIC)), suite.measure(case_of(suite, ONE_RUN, "v100"))]
    suite.write_baselines(rows, suite.propose(rows))
    assert set(suite.baselines.load("cpu").entries) == {SYNTHETIC}
    assert set(suite.baselines.load("gpu").entries) == {ONE_RUN}
    assert suite.baselines.path("cpu") != suite.baselines.path("gpu")


def test_the_recorded_figure_of_one_card_is_what_several_are_held_against(bench: Bench) -> None:
    one, two = "paddle-vgg16-fp32-bs1-1x1-dali-dynamic", "paddle-vgg16-fp32-bs1-1x2-dali-dynamic"
    record(bench, one)
    suite = bench.suite()
    (found,) = scalings([row_of(suite.measure(case_of(suite, two)))], suite.recorded_entry)
    assert (found.reference.case_id, found.reference.samples_per_s) == (one, 100.0)
    assert (found.rows[0].speed_up, found.rows[0].efficiency) == (1.0, 0.5)


def test_what_was_recorded_begins_a_segment_of_the_history(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    (created,) = bench.memory.starts
    entry = bench.suite().baselines.load("cpu").entries[SYNTHETIC]
    assert (created.case_id, created.target, created.segment) == (SYNTHETIC, "cpu", entry.segment)
    assert created.commit == entry.provenance.commit
    assert "created" in created.reason
    suite = bench.suite()
    outcome = suite.measure(case_of(suite, SYNTHETIC))
    unchanged = suite.write_baselines([outcome], suite.propose([outcome]))
    assert [each.kind for each in unchanged] == [ProposalKind.UNCHANGED]
    assert bench.memory.starts == [created]


def test_a_history_that_fails_after_the_write_says_that_the_baselines_are_there(bench: Bench) -> None:
    suite = bench.suite(to_record=True)
    outcome = suite.measure(case_of(suite, SYNTHETIC))
    bench.memory.fails = ("start_segment",)
    with pytest.raises(HistoryError, match="The baselines are written"):
        suite.write_baselines([outcome], suite.propose([outcome]))
    assert set(suite.baselines.load("cpu").entries) == {SYNTHETIC}


# --- which machine it is


def at(
    bench: Bench, machine: Machine, samples_per_s: float, case_id: str = SYNTHETIC, target: str = "cpu"
) -> CaseOutcome:
    """One night of a machine: measured, and recorded where nothing was."""
    bench.runner.usual = {"samples_per_s": samples_per_s, "figures": dict.fromkeys(_RULES, samples_per_s)}
    bench.runner.usual["environment"] = {**ENVIRONMENT.to_mapping(), **_place(machine, target)}
    suite = bench.suite(machine, to_record=True, session=f"s{len(bench.runner.asked)}")
    suite.store = bench.runner.store = ResultStore(bench.folder / "runs", suite.options.session)
    outcome = suite.measure(case_of(suite, case_id, target))
    suite.write_baselines([outcome], suite.propose([outcome]))
    return outcome


_RULES = ("wall-clock", "median-step", "paddleclas-trimmed")


def _place(machine: Machine, target: str) -> dict[str, str]:
    if target == "cpu":
        return {}
    return {"device": "gpu", "card_ids": " ".join(gpu.uuid for gpu in machine.gpus)}


def _node(host: str, machine: Machine = CPU_MACHINE, **values: Any) -> Machine:
    """A machine of its own id, and with cards of its own."""
    gpus = tuple(replace(gpu, uuid=f"{gpu.uuid}-{host}") for gpu in machine.gpus)
    facts = replace(machine.facts, host=host, host_id=f"{zlib.crc32(host.encode()):08x}" * 2)
    return replace(machine, facts=facts, gpus=gpus, **values)


def test_a_machine_with_a_name_is_the_same_in_every_container(bench: Bench) -> None:
    """A container without a machine id was a new machine at every start."""
    first = at(bench, _node("0123456789ab", name="lab"), 100.0)
    second = at(bench, _node("ba9876543210", name="lab"), 100.0)
    assert (first.status, second.status) == (Status.NO_BASELINE, Status.PASS)
    (file,) = (bench.baselines / "recorded").glob("lab-*.json")
    told = next(line for line in bench.suite(_node("x", name="lab")).header_lines() if line.startswith("baselines: "))
    assert told == f"baselines: {file}, by its name in perf.yaml, lab"


def test_what_was_recorded_under_a_machine_s_own_id_is_found_when_it_gets_a_name(bench: Bench) -> None:
    assert at(bench, _node("a"), 100.0).status is Status.NO_BASELINE
    named = _node("a", name="lab")
    assert at(bench, named, 100.0).status is Status.PASS
    suite = bench.suite(named)
    assert suite.baselines.path("cpu").name == f"{_node('a').machine_key('cpu')}.json"
    assert "as this machine was known before; lab-amd-epyc-4c-x2.json, which comes first" in suite.baselines.told()
    # What is recorded next goes into the file that is there.
    at(bench, named, 100.0, DALI)
    entries = bench.suite(named).baselines.load("cpu").entries
    assert {each.segment["host"] for each in entries.values()} == {"lab"} and len(entries) == 2
    outcome = bench.suite(named).measure(case_of(bench.suite(named), SYNTHETIC))
    for kind, files in ((ProposalKind.CREATED, (suite.baselines.path("cpu"),)), (ProposalKind.UNCHANGED, ())):
        assert suite.baseline_files([outcome], [Proposal(SYNTHETIC, kind, None, None, "x")]) == files
    assert at(bench, _node("b", name="other"), 100.0).status is Status.NO_BASELINE


def test_a_container_known_by_its_name_until_now_keeps_its_baselines(bench: Bench) -> None:
    before = _node("a")
    at(bench, before, 100.0)
    facts = replace(before.facts, host_id="f" * 16, id_by="its cards' UUIDs", former_ids=(before.host_id,))
    now = replace(before, facts=facts)
    assert at(bench, now, 100.0).status is Status.PASS
    assert "by its cards' UUIDs" in bench.suite(now).baselines.told()


def test_nodes_of_a_pool_are_compared_with_one_another_and_others_are_not(bench: Bench) -> None:
    gpus = machine_with(SXM2)
    one, two = (_node(each, gpus, pool="v100s") for each in ("n1", "n2"))
    case = (ONE_RUN, "v100")
    assert at(bench, one, 1e6, *case).status is not Status.INCOMPARABLE
    assert at(bench, two, 1e6, *case).status is Status.PASS
    assert [each.name for each in (bench.baselines / "recorded").glob("*.json")] == [
        "v100s-tesla-v100-sxm2-32gb-x1.json"
    ]
    segment = bench.suite(two).baselines.load("gpu").entries[ONE_RUN].segment
    assert segment["host"] == "pool v100s" and "card ids" not in segment
    assert "by the pool v100s of perf.yaml, whose nodes count as equal" in bench.suite(two).baselines.told()
    # Without a pool each is a machine of its own.
    assert bench.suite(_node("n1", gpus)).baselines.load("gpu").entries == {}


@pytest.mark.parametrize(
    ("entry", "name", "pool"),
    [
        ("{host: 'no-such-host', cards: [GPU-0-n1], identity: pool}", "", "lab"),
        ("{cards: [GPU-0-n1], identity: name, cpu_cards: 1}", "lab", ""),
        ("{cards: [GPU-0-n1]}", "", ""),
        ("{cards: [GPU-7], identity: name}", "", ""),
        ("{host: '*', identity: name}", "lab", ""),
    ],
)
def test_perf_yaml_names_a_machine_by_its_host_or_its_cards(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, entry: str, name: str, pool: str
) -> None:
    node = _node("n1", machine_with(SXM2))
    found = replace(node, card_ids=tuple(gpu.uuid for gpu in node.gpus))
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(helpers.session.suite, "discover", lambda **values: asked.append(values) or found)
    options = bench.options()
    text = options.config_path.read_text().replace("machines: {}", f"machines:\n  lab: {entry}")
    options.config_path.write_text(text)
    suite = Suite(options, load_config(options.config_path), bench.published, memory=bench.memory)
    assert (suite.machine.name, suite.machine.pool) == (name, pool)
    assert (suite.machine_config is None) is ("GPU-7" in entry)
    assert ({"cpu_cards": 1} in asked) is ("cpu_cards" in entry)


# --- the reference build


def test_a_drop_is_confirmed_against_the_reference_build(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    bench.runner.usual = {"samples_per_s": 85.0}
    suite = bench.suite(reference_env=bench.good_python)
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert row.status == "REGRESSION"
    assert row.reference_build.startswith("paddle 3.0.0 @abcdef in envs/good")
    roles = {result.role: result.build["interpreter"] for result in bench.runner.store.results(SYNTHETIC)}
    assert roles == {"candidate": "/opt/python", "reference": bench.good_python}


def test_without_a_reference_build_a_drop_beyond_the_band_and_beyond_doubt_fails(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    bench.runner.usual = {"samples_per_s": 85.0}
    suite = bench.suite(gate=[rule(SYNTHETIC)])
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert (row.status, row.effect) == ("SLOWER", "fail")


@pytest.mark.parametrize("folder", [False, True])
def test_a_reference_build_may_be_named_by_its_folder(bench: Bench, folder: bool) -> None:
    path = Path(bench.good_python)
    suite = bench.suite(reference_env=str(path.parents[1] if folder else path))
    plan = suite._planner.plan(case_of(suite, SYNTHETIC))
    assert isinstance(plan, CasePlan)
    assert plan.reference["interpreter"] == str(path)


@pytest.mark.parametrize(
    ("env", "distribution", "told"),
    [
        ("nowhere", "paddlepaddle", "nowhere is no program"),
        (".", "paddlepaddle", "bin/python is no program"),
        ("envs/good", "", "paddle is not installed"),
    ],
)
def test_a_reference_build_that_cannot_run_is_refused_before_measuring(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, env: str, distribution: str, told: str
) -> None:
    assert bench.good_python
    good = replace(Builds(), distribution=distribution)
    monkeypatch.setattr(helpers.plan.installed, "BuildFinder", lambda named_in: good)
    suite = bench.suite(reference_env=str(bench.folder / env))
    with pytest.raises(ConfigError, match=told) as caught:
        suite.prepare([case_of(suite, SYNTHETIC)])
    assert "--reference-env" in str(caught.value)
    assert bench.runner.asked == []


def test_a_reference_build_without_gpu_kernels_is_refused_for_a_gpu_case(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helpers.plan.installed, "BuildFinder", lambda named_in: Builds("paddlepaddle"))
    suite = bench.suite(machine_with(SXM2), reference_env=bench.good_python)
    assert suite.prepare([case_of(suite, SYNTHETIC)]) is None
    with pytest.raises(ConfigError, match="no GPU kernels"):
        suite.prepare([case_of(suite, ONE_RUN, "v100")])


def test_a_case_of_several_nodes_has_no_reference_build_and_says_why(bench: Bench) -> None:
    suite = bench.suite(reference_env=bench.good_python)
    two_nodes = next(case for case in suite.cases if case.case.nodes == 2 and case.target == "cpu")
    found = suite._installed.reference(two_nodes)
    assert isinstance(found, str)
    assert "other hosts" in found
    suite._installed.check_reference([two_nodes])


@pytest.mark.parametrize("how", ["another name of it", "installed once more"])
def test_the_build_under_test_is_no_reference_of_itself(bench: Bench, builds: Builds, how: str) -> None:
    """A drop of 5% was PASS, "the machine is slow tonight", where the option named the build under test."""
    record(bench, SYNTHETIC)
    builds.digests["/opt/python"] = "d1"
    good = bench.good_python
    if how == "another name of it":
        builds.places[good] = builds.places["/opt/python"] = "/opt/lib/site-packages"
    if how == "installed once more":
        builds.digests[good] = "d1"
    bench.runner.usual = {"samples_per_s": 95.0}
    suite = bench.suite(reference_env=good)
    with pytest.raises(ConfigError, match=r"the build under test itself: paddle 3\.0\.0 @abcdef") as caught:
        suite.prepare([case_of(suite, SYNTHETIC)])
    assert "Name the environment of the last release or accepted build" in str(caught.value)
    assert bench.runner.asked == []
    # Where it becomes so after the session began, the drop stays unconfirmed and says why.
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert row.status in ("INCONCLUSIVE", "SLOWER")
    assert "the build under test itself" in row.reason


def test_code_that_makes_a_a_runs_may_take_the_build_under_test_as_its_reference(bench: Bench, builds: Builds) -> None:
    builds.digests["/opt/python"] = builds.digests[bench.good_python] = "d1"
    suite = bench.suite(reference_env=bench.good_python, same_build=True)
    suite.prepare([case_of(suite, SYNTHETIC)])
    plan = suite._planner.plan(case_of(suite, SYNTHETIC))
    assert isinstance(plan, CasePlan)
    assert (plan.build["digest"], plan.reference["digest"]) == ("d1", "d1")


def test_what_was_installed_is_in_every_result(bench: Bench, builds: Builds) -> None:
    builds.digests["/opt/python"] = "d1"
    suite = bench.suite()
    suite.measure(case_of(suite, SYNTHETIC))
    assert {run.build["digest"] for run in bench.runner.store.results(SYNTHETIC)} == {"d1"}


@pytest.mark.parametrize("recorded_with", ["2.6.2", "3.0.0"])
def test_two_builds_alike_in_name_do_not_answer_for_an_entry_of_a_third(
    bench: Bench, builds: Builds, recorded_with: str
) -> None:
    """Without digests, pairs may hold a build against itself: then they call its drop the machine's."""
    there = {"framework": "paddle", "framework_version": recorded_with, "framework_commit": "abcdef"}
    bench.runner.usual = {"environment": {**ENVIRONMENT.to_mapping(), **there}}
    record(bench, SYNTHETIC)
    builds.digests["/opt/python"] = builds.digests[bench.good_python] = ""
    there["framework_version"] = "3.0.0"
    bench.runner.usual = {"samples_per_s": 85.0, "environment": {**ENVIRONMENT.to_mapping(), **there}}
    suite = bench.suite(reference_env=bench.good_python)
    found = suite._planner.plan(case_of(suite, SYNTHETIC))
    assert isinstance(found, CasePlan)
    assert bool(found.reference) is (recorded_with == "3.0.0")
    if recorded_with == "2.6.2":
        told = "alike in version and commit, neither has a digest, and the recorded entry is of another, 2.6.2 @abcdef"
        assert told in found.why_no_reference
        suite.prepare([case_of(suite, SYNTHETIC)])


def test_a_reference_that_is_not_what_was_recorded_says_so(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    suite = bench.suite(reference_env=bench.good_python)
    plan = suite._planner.plan(case_of(suite, SYNTHETIC))
    assert isinstance(plan, CasePlan)
    assert plan.recorded is not None
    there = {**plan.recorded.environment, "framework": "paddle", "framework_version": "2.6.2", "framework_commit": ""}
    other = replace(plan, recorded=replace(plan.recorded, environment=there))
    assert other.reference_label == "paddle 3.0.0 @abcdef in envs/good, not the recorded entry's paddle 2.6.2"
    same = {**there, "framework_version": "3.0.0", "framework_commit": "abcdef"}
    assert "recorded" not in str(replace(plan, recorded=replace(plan.recorded, environment=same)).reference_label)


def test_what_is_to_be_recorded_is_measured_as_often_as_its_protocol_plans(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    plans = [(suite := bench.suite(to_record=each))._planner.plan(case_of(suite, SYNTHETIC)) for each in (False, True)]
    assert [plan.planned_runs for plan in plans if isinstance(plan, CasePlan)] == [1, 3]


def test_a_case_may_take_the_runs_that_perf_yaml_gives_it(bench: Bench) -> None:
    suite = bench.suite()
    suite.config = replace(suite.config, budgets=Budgets(cases=(("*-synthetic-*", {"pairs": 4}),)))
    budgets = [suite._planner.plan(case_of(suite, case_id)) for case_id in (SYNTHETIC, DALI)]
    assert [plan.budget.pairs for plan in budgets if isinstance(plan, CasePlan)] == [4, Budget().pairs]


# --- the history


def test_the_header_names_the_history_and_the_reference_build(bench: Bench) -> None:
    (history,) = [line for line in bench.suite().header_lines() if line.startswith("history: ")]
    assert "runs/history.sqlite" in history
    assert "no reference build" in history
    suite = bench.suite(reference_env=bench.good_python, history_url="postgresql://me:p@ss@db/perf?sslpassword=x")
    (history,) = [line for line in suite.header_lines() if line.startswith("history: ")]
    assert history == (
        "history: postgresql://me:***@db/perf?sslpassword=***; reference build: paddle 3.0.0 @abcdef in envs/good"
    )


def test_the_command_line_s_history_comes_before_perf_yaml_s(bench: Bench) -> None:
    suite = bench.suite()
    suite.config = replace(suite.config, history=HistoryConfig("sqlite:///a.sqlite"))
    assert "sqlite:///a.sqlite" in suite.header_lines()[-1]
    suite.options = replace(suite.options, history_url="sqlite:///b.sqlite")
    assert "sqlite:///b.sqlite" in suite.header_lines()[-1]


def test_a_history_that_cannot_be_opened_is_refused_before_measuring(bench: Bench) -> None:
    (bench.folder / "runs").write_text("a file where a folder is wanted")
    suite = bench.suite(history_url=f"sqlite:///{bench.folder}/runs/history.sqlite")
    del suite.memory
    with pytest.raises(HistoryError):
        suite.prepare([case_of(suite, SYNTHETIC)])
    assert bench.runner.asked == []


def test_a_history_that_is_away_is_no_error_and_its_entries_wait(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    asked = len(bench.runner.asked)
    suite = bench.suite(history_url="postgresql://me:secret@127.0.0.1:1/perf")
    del suite.memory
    assert suite.history_notes() == ()
    suite.prepare([case_of(suite, SYNTHETIC)])
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert (row.status, row.code, row.effect) == ("INCONCLUSIVE", "history-unreachable", "warn")
    assert "unreachable since" in row.reason and "95%" in row.reason
    made = len(bench.runner.asked) - asked
    (note,) = suite.history_notes()
    # Each run and the night.
    assert f"{made + 1} entries" in note and "secret" not in note + row.reason
    assert f"({made + 1} entries spooled in" in suite.header_lines()[-1]


def test_a_case_without_a_clear_answer_for_want_of_its_past_fails_the_gate(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    suite = bench.suite(gate=[rule("*")], history_url="postgresql://127.0.0.1:1/perf")
    del suite.memory
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert (row.status, row.code, row.effect) == ("INCONCLUSIVE", "history-unreachable", "fail")


def test_a_history_that_fails_is_an_infra_error_with_the_run_that_was_made(bench: Bench) -> None:
    bench.memory.fails = ("add_result",)
    suite = bench.suite()
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert (row.status, row.code, row.runs) == ("INFRA_ERROR", "HistoryError", 1)
    assert "disk full" in row.reason


def test_a_full_disk_is_told_by_its_class_first(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: RunResult) -> None:
        raise HistoryError("history spool x", got=str(OSError(28, "No space left on device")))

    monkeypatch.setattr(bench.memory, "add_result", full)
    suite = bench.suite()
    row = row_of(suite.measure(case_of(suite, SYNTHETIC)))
    assert (row.status, row.runs) == ("INFRA_ERROR", 1)
    assert row.reason.startswith("disk full: history spool x")


def test_nights_are_remembered_from_session_to_session(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Recorded a minute ago: of the very second in which a segment begins, no night belongs to it.
    monkeypatch.setattr(helpers.session.suite, "utc_now", lambda: utc_now() - datetime.timedelta(minutes=1))
    with open_history(default_url(tmp_path)) as history:
        bench.memory = history
        record(bench, SYNTHETIC)
        for day in ("monday", "tuesday"):
            bench.runner.store = ResultStore(tmp_path / "runs", day)
            bench.runner.usual = {"session": day}
            suite = bench.suite()
            assert row_of(suite.measure(case_of(suite, SYNTHETIC))).status == "PASS"
        segment = bench.suite().baselines.load("cpu").entries[SYNTHETIC].segment
        nights = history.past(SYNTHETIC, "cpu", segment, 1, "wednesday").nights
    assert [night.session for night in nights] == ["monday", "tuesday"]


def test_the_error_rates_hold_over_the_cases_that_run_here(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []

    def measured(plan: CasePlan, *_: Any, cases_tonight: int, **__: Any) -> Any:
        told.append(cases_tonight)
        return not_run(plan, "x")

    monkeypatch.setattr(helpers.session.measuring, "measure_case", measured)
    suite = bench.suite()
    case = case_of(suite, SYNTHETIC)
    suite.prepare([case, case_of(suite, DALI), case_of(suite, ONE_RUN, "v100")])
    suite.measure(case)
    assert told == [2]


def test_a_suspicion_of_the_whole_night_confirms_a_case_that_was_judged(bench: Bench) -> None:
    record(bench, SYNTHETIC)
    suite = bench.suite(reference_env=bench.good_python)
    bench.runner.store.folder.rename(bench.folder / "recorded-session")
    case = case_of(suite, SYNTHETIC)
    before = suite.measure(case)
    screened = len(bench.runner.asked)
    after = suite.confirm(case, "all amp cases fell together")
    made = [replicate for _, replicate in bench.runner.asked]
    assert made == list(range(len(made)))
    assert len(made) > screened
    assert after.run_folders[: len(before.run_folders)] == before.run_folders
    assert len(pairs_of(after.runs)) >= len(pairs_of(before.runs))


# --- frameworks' environments


def _pytorch_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[Suite, list[str]]:
    """The suite on a machine without PyTorch's environment, and what it asks to be built there."""
    config = tmp_path / "perf.yaml"
    config.write_text((ROOT / "perf.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    asked: list[str] = []

    def run(argv: Sequence[str]) -> tuple[int, str]:
        asked.append(" ".join(argv[2:]))
        python = Path(argv[-1]) / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.symlink_to(sys.executable)
        (Path(argv[-1]) / ".perfgate-stamp.json").touch()
        return 0, ""

    @dataclass
    class BuildsOnDisk(Builds):
        def find_build(self, framework: Framework, interpreter: str | None = None) -> FrameworkBuild | str:
            if framework is Framework.PYTORCH and Path(str(interpreter)).parents[1].exists():
                return FrameworkBuild(str(interpreter), framework, "torch", "2.13.0")
            return super().find_build(framework, interpreter)

    monkeypatch.setattr(helpers.machine.frameworks, "_run", run)
    monkeypatch.setattr(helpers.session.suite, "BuildFinder", BuildsOnDisk)
    values = SuiteOptions(config, BASELINES, tmp_path / "runs", "s", **options)
    return Suite.load(values, machine=CPU_MACHINE, memory=MemoryDouble()), asked  # type: ignore[arg-type]


PYTORCH = "pytorch-resnet50v1.5-fp32-bs4-1x1-synthetic"


def _case(suite: Suite, case_id: str) -> SuiteCase:
    return next(each for each in suite.cases if each.case.id == case_id)


def test_a_case_whose_environment_is_missing_is_not_run_with_the_command_that_builds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, asked = _pytorch_suite(tmp_path, monkeypatch)
    row = row_of(suite.measure(_case(suite, PYTORCH)))
    assert (row.status, row.effect) == ("not run", "skip")
    command = f"python requirements/bootstrap.py --requirements pytorch --venv {tmp_path / '.venv-pytorch'}"
    assert command in row.reason
    assert "--build-envs" in row.reason
    assert asked == []


def test_what_the_selected_cases_lack_is_built_and_they_run_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, asked = _pytorch_suite(tmp_path, monkeypatch, build_envs=True)
    chosen, said = [_case(suite, PYTORCH), _case(suite, SYNTHETIC)], list[str]()
    assert suite.why_not(chosen[0]) is None
    suite.build_environments(chosen, said.append)
    assert asked == [f"--requirements pytorch --venv {tmp_path / '.venv-pytorch'}"]
    assert len(said) == 2
    assert suite.expect(chosen) == chosen
    suite.build_environments(chosen, said.append)
    assert len(asked) == 1


def test_nothing_is_built_that_the_selected_cases_do_not_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite, asked = _pytorch_suite(tmp_path, monkeypatch, build_envs=True)
    on_a_card = next(each for each in suite.cases if each.case.framework is Framework.PYTORCH and each.target == "a100")
    suite.build_environments([_case(suite, SYNTHETIC), on_a_card], lambda line: None)
    assert asked == []
    assert suite.why_not(_case(suite, PYTORCH)) is not None


def test_a_worker_counts_the_cases_that_the_controller_is_building_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite, asked = _pytorch_suite(tmp_path, monkeypatch, build_envs=True)
    chosen = [_case(suite, PYTORCH)]
    assert suite.expect(chosen) == chosen
    assert asked == []
    # What the controller has built meanwhile, or not, is looked for when the case's turn comes.
    assert suite.why_not(chosen[0]) is not None
    (tmp_path / ".venv-pytorch").mkdir()
    assert suite.why_not(chosen[0]) is None
