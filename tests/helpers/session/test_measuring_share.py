"""The share of the cards' peak, from a recorded figure and a stand-in probe to the run's file and the case's row."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import helpers.session.measuring
from helpers.history.results import RunResult
from helpers.history.run_folders import ResultStore
from helpers.judging.evidence import Build, Stage
from helpers.judging.utilisation import Peak
from helpers.judging.verdict import NeedRuns, Reason, Status, Verdict
from helpers.launch.programs import Peaks, Probe
from helpers.launch.tail import Progress
from helpers.machine.devices import Card, CpuCard
from helpers.machine.nvml import Gpu
from helpers.plan.case_plan import CasePlan, SuiteCase
from helpers.report.results import SessionReport, results_json
from helpers.report.row import row_of
from helpers.report.text import render
from helpers.session import SuiteOptions
from helpers.session.gate import Gate
from helpers.session.measure import CaseResult
from helpers.session.measuring import Measurer, MeasureRequest, ShareOfPeak, probe_of
from helpers.trainers.contract.case import DataSource
from helpers.trainers.contract.errors import LaunchError
from tests.helpers.machines import CPU_MACHINE
from tests.helpers.memory_double import MemoryDouble
from tests.helpers.session_double import NEW, FakeRunner, finish

MakePlan = Callable[..., CasePlan]
MakeRun = Callable[..., RunResult]
CARD = CpuCard(0, (0, 1))
H100 = Gpu(0, "GPU-0", "NVIDIA H100 80GB HBM3", 80 * 1024**3, (9, 0))
# VGG16 with 92.65 GFLOP each, the plan's: 2 images/s on 2 cards are 185 GFLOP/s of 2 x 400.
PEAK = Peak("fp32", "cpu", "AMD EPYC", "", 0.4, 1024, 5, "paddle.matmul", "3.3.1")
TOLD = "23.2% of 2 x the measured fp32 peak (400 GFLOP/s a card)"
NO_BASELINE = Verdict(Status.NO_BASELINE, Reason("nothing-recorded", "nothing recorded"))


@dataclass
class Bench:
    """A session with finished runs, and a probe that answers ``found`` and keeps what it was asked."""

    store: ResultStore
    plan: CasePlan
    found: Peak | Exception = PEAK
    memory: MemoryDouble = field(default_factory=MemoryDouble)
    asked: list[Probe] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    cards: tuple[Card, ...] = (CARD,)

    def measure(self, probe: Probe) -> Peak:
        self.asked.append(probe)
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def into(self, *runs: RunResult) -> CaseResult:
        """As measure_case leaves them: on disk with their verdict."""
        finish(self.store, *runs)
        self.store.add_verdict(runs, NO_BASELINE)
        share = ShareOfPeak(Peaks(self.store.folder, self.measure), self.store, self.memory, self.told.append)
        return share.into(CaseResult(self.plan, NO_BASELINE, runs), self.cards, "host")

    def on_disk(self) -> tuple[RunResult, ...]:
        return self.store.results(self.plan.case.id)


@pytest.fixture
def plan(make_plan: MakePlan) -> CasePlan:
    variables = {"MKL_DEBUG_CPU_TYPE": 7, "FLAGS_conv_workspace_size_limit": "4000"}
    return make_plan(build=NEW, settings={"amp_dtype": None, "environment": variables})


@pytest.fixture
def bench(tmp_path: Path, plan: CasePlan) -> Bench:
    return Bench(ResultStore(tmp_path / "runs", "s"), plan)


def test_the_share_stands_in_the_runs_file_beside_its_verdict(bench: Bench, make_run: MakeRun) -> None:
    result = bench.into(make_run(bench.plan, 0, 2.0, facts={"cores": "0,1"}), make_run(bench.plan, 1, 2.0))
    first, second = bench.on_disk()
    assert first.facts["utilisation"].startswith(f"{TOLD}; 2 images/s by wall-clock of 2 cards x 92.65 GFLOP each")
    assert first.facts["peak_tflops"] == "0.4" and first.facts["cores"] == "0,1"
    assert first.verdict == second.verdict == {"status": "NO_BASELINE", "code": "nothing-recorded",
                                               "reason": "nothing recorded"}  # fmt: skip
    assert [run.facts for run in result.runs] == [first.facts, second.facts]
    assert [run.facts for run in bench.memory.results] == [first.facts, second.facts]
    assert (len(bench.asked), bench.told) == (1, [bench.plan.case.id])


def test_the_row_has_the_share_of_the_cases_own_figure(bench: Bench, make_run: MakeRun) -> None:
    result = bench.into(make_run(bench.plan, 0, 1.0), make_run(bench.plan, 1, 3.0))
    row = row_of(Gate(enabled=False).outcome(result))
    assert row.utilisation is not None and row.utilisation.peak == PEAK
    assert (row.utilisation.samples_per_s, row.utilisation.in_short()) == (2.0, TOLD)
    written = results_json(SessionReport([row], session="s", exit_code=0, machine={}, command=(), not_reached=0))
    share = json.loads(written)["cases"][0]["utilisation"]
    assert (share["share"], share["rule"], share["cards"]) == (row.utilisation.share, "wall-clock", 2)
    assert (share["peak"]["tflops"], share["peak"]["precision"], share["peak"]["size"]) == (0.4, "fp32", 1024)
    short, long = (render([row], 120, details=details) for details in (False, True))
    assert f"    utilisation: {TOLD}\n" in short
    whole = f"utilisation: {TOLD}; 2 images/s by wall-clock of 2 cards x 92.65 GFLOP each = 185 GFLOP/s; peak: 1024"
    assert whole in long.replace("\n   ", "")


def test_without_a_probe_the_row_has_none(plan: CasePlan, make_run: MakeRun) -> None:
    row = row_of(Gate(enabled=False).outcome(CaseResult(plan, NO_BASELINE, (make_run(plan),))))
    assert row.utilisation is None
    assert "utilisation" not in render([row], 120, details=True)


def test_a_probe_that_fails_is_a_reason_and_changes_nothing_else(bench: Bench, make_run: MakeRun) -> None:
    bench.found = LaunchError("helpers.trainers.paddle.peak", got="no answer within 120 s")
    run = make_run(bench.plan, 0, 2.0)
    result = bench.into(run)
    reason = "no share: the peak could not be measured: helpers.trainers.paddle.peak: got 'no answer within 120 s'"
    assert result.verdict is NO_BASELINE
    (kept,) = bench.on_disk()
    assert kept.facts["utilisation"].startswith(reason)
    assert replace(kept, facts={}, verdict=None) == replace(run, facts={})
    row = row_of(Gate(enabled=False).outcome(result))
    assert row.utilisation is not None and row.utilisation.in_short() == reason


@pytest.mark.parametrize("fails", [("add_result",), ("disk",)])
def test_what_cannot_be_kept_is_told_and_changes_no_verdict(
    bench: Bench, make_run: MakeRun, fails: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError("No space left on device")

    bench.memory.fails = fails
    share = ShareOfPeak(Peaks(bench.store.folder, bench.measure), bench.store, bench.memory, bench.told.append)
    run = make_run(bench.plan, 0, 2.0)
    finish(bench.store, run)
    if fails == ("disk",):
        monkeypatch.setattr("helpers.history.run_folders.write_whole", full)
    result = share.into(CaseResult(bench.plan, NO_BASELINE, (run,)), (CARD,), "host")
    assert result.verdict is NO_BASELINE
    assert result.runs[0].facts["utilisation"].startswith("no share: the share of the peak could not be written: ")


def test_only_usable_runs_of_the_build_under_test_get_one_and_only_once(bench: Bench, make_run: MakeRun) -> None:
    plan = bench.plan
    runs = (
        make_run(plan, 0, failure="killed", figures={}),
        make_run(plan, 1, role=Build.REFERENCE.value, stage=Stage.CONFIRM.value),
        make_run(plan, 2, figures={plan.rule: "too short"}),
        make_run(plan, 3, facts={"utilisation": "as it was"}),
        make_run(plan, 4, invalid="throttled"),
    )
    assert bench.into(*runs).runs == runs
    assert (bench.asked, bench.memory.results) == ([], [])
    assert "utilisation" in bench.into(*runs, make_run(plan, 5, 2.0)).runs[5].facts
    assert [run.replicate for run in bench.memory.results] == [5]


def test_cards_of_two_models_have_no_share(bench: Bench, make_run: MakeRun) -> None:
    bench.cards = (H100, replace(H100, index=1, uuid="GPU-1", name="NVIDIA A100-SXM4-80GB"))
    (run,) = bench.into(make_run(bench.plan, 0, 2.0, environment={"card_ids": "GPU-0 GPU-1"})).runs
    assert bench.asked == []
    assert run.facts["no_peak"] == (
        "its cards are of 2 models (NVIDIA A100-SXM4-80GB, NVIDIA H100 80GB HBM3), and one of them speaks for all"
    )


def test_a_run_on_another_card_than_the_measured_one_has_no_share(bench: Bench, make_run: MakeRun) -> None:
    bench.cards = (H100, replace(H100, index=1, uuid="GPU-1"))
    of_ids = {number: {"card_ids": ids} for number, ids in enumerate(("GPU-0 GPU-1", "GPU-2 GPU-3", ""))}
    runs = bench.into(*(make_run(bench.plan, number, 2.0, environment=of_ids[number]) for number in of_ids)).runs
    assert ["peak_tflops" in run.facts for run in runs] == [True, False, False]
    assert runs[1].facts["no_peak"] == (
        "this run was on another card than GPU-0, which was at hand to measure the peak of"
    )


def test_the_probe_has_the_variables_of_the_jobs_but_no_switches_of_whole_programs(plan: CasePlan) -> None:
    probe = probe_of(plan, CARD, "host")
    assert (probe.precision, probe.device, probe.card, probe.host_id) == ("fp32", "cpu", CARD, "host")
    assert probe.variables == {"MKL_DEBUG_CPU_TYPE": "7"}
    assert probe.build == NEW


def test_mixed_precision_is_held_against_its_16_bit_product(make_plan: MakePlan) -> None:
    assert probe_of(make_plan(build=NEW, settings={"amp_dtype": "float16"}), CARD, "host").precision == "fp16"


# ---- when a session measures one


@dataclass
class Session:
    """A Measurer whose planner, lease and probe are stand-ins; ``events`` is what happened in its order."""

    plan: CasePlan
    runner: FakeRunner
    monkeypatch: pytest.MonkeyPatch
    events: list[str] = field(default_factory=list)
    probed: list[Card] = field(default_factory=list)

    def measure(self, utilisation: bool | None) -> CaseResult:
        options = SuiteOptions(Path("perf.yaml"), Path("b"), self.runner.store.root, "s", utilisation=utilisation)
        self.monkeypatch.setattr(helpers.session.measuring, "leased_runner", self._leased)
        self.monkeypatch.setattr("helpers.session.measuring.Peaks", lambda folder: Peaks(folder, self._probe))
        config: Any = SimpleNamespace(contention=None)
        planner: Any = SimpleNamespace(plan=lambda suite_case: self.plan)
        measurer = Measurer(options, config, CPU_MACHINE, planner, Gate(False), self.runner.store, MemoryDouble, dict)
        suite_case: SuiteCase = self.plan.suite_case

        def progress(progress: Progress) -> None:
            self.events.append(progress.phase)

        def judge(evidence: Any) -> Verdict | NeedRuns:
            return NO_BASELINE if evidence.runs else NeedRuns(Build.CANDIDATE, (Build.CANDIDATE,), 1, "one")

        return measurer.measure(suite_case, MeasureRequest(by=judge), progress)

    @contextmanager
    def _leased(self, *_: object) -> Iterator[Any]:
        self.events.append("leased")
        self.runner.before = lambda: self.events.append("run")
        leased: Any = self.runner
        leased.cards, leased.connected = (CARD, CpuCard(1, (2, 3))), SimpleNamespace(nodes="")
        yield leased
        self.events.append("released")

    def _probe(self, probe: Probe) -> Peak:
        self.events.append("probe")
        self.probed.append(probe.card)
        return PEAK


@pytest.fixture
def session(tmp_path: Path, plan: CasePlan, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> Session:
    plan = replace(plan, suite_case=replace(plan.suite_case, case=replace(plan.case, data=DataSource.SYNTHETIC)))
    return Session(plan, FakeRunner(ResultStore(tmp_path / "runs", "s"), make_run), monkeypatch)


def test_the_peak_is_measured_on_a_leased_card_after_the_last_run_and_before_the_release(session: Session) -> None:
    result = session.measure(True)
    assert session.events == ["leased", "run", "measuring the card's fastest matrix product", "probe", "released"]
    assert session.probed == [CARD]
    assert result.verdict is NO_BASELINE
    assert "utilisation" in session.runner.store.results(session.plan.case.id)[0].facts


@pytest.mark.parametrize(
    ("wanted", "target", "probes"),
    [(None, "cpu", 0), (None, "v100", 1), (None, "gpu", 1), (True, "cpu", 1), (False, "v100", 0)],
)
def test_by_default_it_is_measured_on_gpus_alone(
    session: Session, wanted: bool | None, target: str, probes: int
) -> None:
    session.plan = replace(session.plan, suite_case=replace(session.plan.suite_case, target=target))
    session.measure(wanted)
    assert len(session.probed) == probes
