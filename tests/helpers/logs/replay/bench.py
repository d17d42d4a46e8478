"""A folder of logs, suites that judge them, and what this machine recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from helpers.history.results import RunResult
from helpers.judging.judge import judge
from helpers.logs.replay.suite import ReplaySuite
from helpers.machine.devices import CpuCard, Machine, environment_of
from helpers.machine.environment import Host
from helpers.plan.case_plan import CasePlan, SuiteCase
from helpers.plan.perf_yaml import load_config
from helpers.plan.published import PublishedSet
from helpers.report.row import CaseRow, row_of
from helpers.session.measure import CaseResult, evidence_of
from helpers.session.suite import Suite, SuiteOptions
from tests.helpers.importing_double import read_double, write_log
from tests.helpers.memory_double import MemoryDouble
from tests.helpers.replay_double import write_result, write_run

ROOT = Path(__file__).resolve().parents[4]
HOST = Host("h", "0123456789abcdef", "Linux", "6.1", "AMD EPYC", 4, 8 * 1024**3)
MACHINE = Machine(HOST, (CpuCard(0, (0,)), CpuCard(1, (1,))), gpu_note="no libnvidia-ml.so.1")
CPU_CASE = "paddle-resnet50v1.5-fp32-bs4-1x1-dali-dynamic"
GATE = "paddle-resnet50v1.5-fp32-bs256-1x1-native-static"
SHOWN = "mxnet-resnet50v1.5-amp-bs256-1x1-dali"
PUBLISHED = 393.561

MakeRun = Callable[..., RunResult]


@dataclass
class Bench:
    """A folder of logs, and suites that judge them."""

    folder: Path
    published: Mapping[str, PublishedSet]
    memory: MemoryDouble = field(default_factory=MemoryDouble)

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    def log(self, name: str, settings: Mapping[str, str], rate: float | None = None, **more: str) -> None:
        """A log of ``settings`` with ``rate`` images/s by paddleclas-trimmed, in a folder of V100 logs."""
        figures = None if rate is None else {"paddleclas-trimmed": rate, "honest": 0.99 * rate}
        write_log(self.logs / "V100-LOG" / name, {**settings, **more}, figures)

    def suite(self, gate: str = "", **changes: Any) -> ReplaySuite:
        self.logs.mkdir(exist_ok=True)
        text = (ROOT / "perf.yaml").read_text(encoding="utf-8")
        rules = f"machines:\n  here:\n    host: '*'\n    gate:\n      - {gate}"
        config = self.folder / "perf.yaml"
        config.write_text(text.replace("machines: {}", rules) if gate else text, encoding="utf-8")
        options = SuiteOptions(config, self.folder / "baselines", self.folder / "runs", "tonight")
        options = replace(options, **{"gate": bool(gate), "replay": str(self.logs), **changes})
        suite = ReplaySuite(options, load_config(config), self.published, machine=MACHINE, memory=self.memory)
        suite.reader = read_double
        return suite

    def row(self, case_id: str, target: str = "v100", **changes: Any) -> CaseRow:
        suite = self.suite(**changes)
        return row_of(suite.measure(case_of(suite, case_id, target)))


def case_of(suite: Suite, case_id: str, target: str) -> SuiteCase:
    (found,) = [case for case in suite.cases if case.key == (target, case_id)]
    return found


@dataclass
class Recorded:
    """This machine's entry of CPU_CASE and a session of it on disk, as a live suite left them."""

    bench: Bench
    make_run: MakeRun

    def result(self, samples_per_s: float = 8.0, **changes: Any) -> RunResult:
        suite = self.bench.suite()
        case = case_of(suite, CPU_CASE, "cpu")
        environment = environment_of(
            MACHINE, MACHINE.cpu_cards[:1], framework="paddle", framework_version="3.0.0", data="d", variables={}
        ).to_mapping()
        return self.make_run(CasePlan(case), samples_per_s=samples_per_s, **{"environment": environment, **changes})

    def session(self, name: str, *seconds: float, **changes: Any) -> None:
        for number, each in enumerate(seconds):
            folder = write_run(
                self.bench.logs / name / CPU_CASE / f"r{number}", CPU_CASE, each, job_id=f"{name}{number}"
            )
            write_result(folder, self.result(session=name, replicate=number), uuid=f"{name}{number}", **changes)

    def record(self, samples_per_s: float = 8.0) -> None:
        suite = Suite(
            replace(self.bench.suite().options, replay=None),
            self.bench.suite().config,
            self.bench.published,
            machine=MACHINE,
            memory=self.bench.memory,
        )
        runs = tuple(self.result(samples_per_s, replicate=number) for number in range(3))

        plan = replace(CasePlan(case_of(suite, CPU_CASE, "cpu")), to_record=True)
        plan = replace(plan, suite_case=replace(plan.suite_case, protocol=replace(plan.protocol, runs=3)))
        verdict = judge(evidence_of(plan, runs))
        outcome = suite.gate.outcome(CaseResult(plan, verdict, runs))
        written = suite.write_baselines([outcome], suite.propose([outcome]))
        assert [each.kind.value for each in written] == ["created"]
