"""A whole suite without a training: a stand-in machine, its builds, and a runner that answers with figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from helpers.history.results import RunResult
from helpers.history.run_folders import ResultStore
from helpers.judging.case.evidence import Build, Stage
from helpers.launch.nodes.connected import ConnectedNodes
from helpers.machine.devices import CpuCard, Machine
from helpers.machine.framework_builds import BuildIdentity, FrameworkBuild
from helpers.machine.host import Host
from helpers.machine.nvml import Gpu
from helpers.plan.case_plan import CasePlan, SuiteCase
from helpers.plan.image_folder import DatasetFacts
from helpers.plan.perf_yaml import load_config
from helpers.plan.published import PublishedSet
from helpers.session.suite import Suite, SuiteOptions
from helpers.trainers.contract.frameworks import Framework
from tests.helpers.memory_double import MemoryDouble
from tests.helpers.session_double import named_build, roles

ROOT = Path(__file__).resolve().parents[3]
HOST = Host("h", "0123456789abcdef", "Linux", "6.1", "AMD EPYC", 4, 8 * 1024**3)
CPU_MACHINE = Machine(HOST, (CpuCard(0, (0,)), CpuCard(1, (1,))), gpu_note="no libnvidia-ml.so.1")
SXM2, PCIE, A100 = "Tesla V100-SXM2-32GB", "Tesla V100-PCIE-16GB", "NVIDIA A100-SXM4-40GB"
H200 = "NVIDIA H200"
GOOD_PYTHON = "/opt/good/bin/python"
CAPABILITIES = {A100: (8, 0), H200: (9, 0), "NVIDIA H100 PCIe": (9, 0)}
PHOTOGRAPHS = DatasetFacts(Path("photographs"), 8, 2, "0" * 64)
# As many as every published comparison on one node needs.
IMAGENET = DatasetFacts(Path("imagenet"), 1_281_167, 1000, "1" * 64)

# A case of perf.yaml that needs no images, its protocol asking for two runs; and its neighbour.
SYNTHETIC = "paddle-resnet50v1.5-fp32-bs4-1x1-synthetic-dynamic"
DALI = "paddle-resnet50v1.5-fp32-bs4-1x1-dali-dynamic"
ONE_RUN = "paddle-resnet50v1.5-amp_o2-bs256-1x1-dali-static"
DISPUTED = "paddle-resnet50v1.5-tf32-bs256-1x8-native-static"

MakeRun = Callable[..., RunResult]


def machine_with(*names: str) -> Machine:
    gpus = tuple(
        Gpu(n, f"GPU-{n}", name, 32 * 1024**3, CAPABILITIES.get(name, (7, 0)), 300) for n, name in enumerate(names)
    )
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
    no_dali: str = ""
    libraries: dict[str, str] = field(default_factory=lambda: {"python": "3.11.7"})

    def find_identity(self, build: FrameworkBuild) -> BuildIdentity:
        name = build.interpreter
        return BuildIdentity(name, self.places.get(name, name), self.digests.get(name, f"digest of {name}"))

    def find_build(self, framework: Framework, interpreter: str | None = None) -> FrameworkBuild | str:
        if framework not in self.frameworks or not self.distribution:
            return f"{framework.value} is not installed"
        python = interpreter or "/opt/python"
        return FrameworkBuild(python, framework, self.distribution, "3.0.0", "abcdef", self.no_dali)

    def find_libraries(self, build: FrameworkBuild) -> dict[str, str] | str:
        return self.libraries


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
    def good(self) -> dict[str, dict[str, str]]:
        """A reference build, as it is named."""
        return {Build.REFERENCE.value: named_build(GOOD_PYTHON)}

    @property
    def baselines(self) -> Path:
        return self.folder / "baselines"

    def options(self, gate: Sequence[dict[str, str]] = (), **changes: Any) -> SuiteOptions:
        """Options with a perf.yaml of this folder; ``gate`` are the rules in it, which turn ``--gate`` on."""
        text = (ROOT / "helpers/plan/defaults.yaml").read_text(encoding="utf-8")
        text += "\nmachines: {}\nowners: []\nquarantine: []\n"
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


def case_of(suite: Suite, case_id: str, target: str = "cpu") -> SuiteCase:
    (found,) = [case for case in suite.cases if case.key == (target, case_id)]
    return found


def rule(cases: str, needs: str = "recorded", **more: str) -> dict[str, str]:
    return {"cases": cases, "needs": needs, **more}


def record(bench: Bench, case_id: str) -> None:
    """Measure a case on the CPU machine and write it as its baseline."""
    suite = bench.suite(to_record=True)
    outcome = suite.measurer.measure(case_of(suite, case_id))
    suite.recorder.write([outcome], suite.recorder.propose([outcome]))
    bench.runner.asked.clear()
