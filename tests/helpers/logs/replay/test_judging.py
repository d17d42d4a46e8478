"""Logs judged in the place of runs: which case a log is of, by which rule, against what; and what never comes of it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from helpers.history.results import CONTENDED, FAILURE_FACT, REPLAYED, RunResult
from helpers.history.run_folders import ResultStore, read_result
from helpers.judging.evidence import Build, Stage
from helpers.judging.judge import judge
from helpers.judging.rules import figures
from helpers.judging.verdict import Status, Verdict
from helpers.launch.steplog_reader import read_step_log
from helpers.logs.replay.fit import fit
from helpers.logs.replay.judging import ReplayRunner, published_for
from helpers.logs.replay.logs import LogFolder, LoggedRun
from helpers.logs.replay.suite import ReplaySuite
from helpers.machine.devices import CpuCard, Machine, environment_of
from helpers.machine.environment import Host
from helpers.plan.baseline_files import BASELINES
from helpers.plan.case_plan import CasePlan, SuiteCase, published_references
from helpers.plan.perf_yaml import MeasuringProtocol, load_config
from helpers.plan.proposals import ProposalKind
from helpers.plan.published import PublishedSet, load_published
from helpers.report.row import CaseRow, row_of
from helpers.session.measure import CaseResult, evidence_of
from helpers.session.suite import Suite, SuiteOptions
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import BaselineError, ConfigError, ResultError
from tests.helpers.importing_double import MXNET, PADDLE, imported, read_double, write_log
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


@pytest.fixture(scope="module")
def published() -> Mapping[str, PublishedSet]:
    return {target: load_published(BASELINES / "published" / f"{target}.json") for target in ("a100", "v100")}


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


@pytest.fixture
def bench(tmp_path: Path, published: Mapping[str, PublishedSet]) -> Bench:
    return Bench(tmp_path, published)


def case_of(suite: Suite, case_id: str, target: str) -> SuiteCase:
    (found,) = [case for case in suite.cases if case.key == (target, case_id)]
    return found


# --- judged by the published rule against the published figure


@pytest.mark.parametrize(
    ("share", "status", "effect"),
    [(1.02, "PASS", "pass"), (0.951, "PASS", "pass"), (0.949, "BELOW_PUBLISHED", "fail")],
)
def test_the_published_band_is_a_live_runs(bench: Bench, share: float, status: str, effect: str) -> None:
    bench.log("a.log", PADDLE, share * PUBLISHED)
    row = bench.row(GATE)
    assert (row.status, row.effect) == (status, effect)
    assert row.samples_per_s == pytest.approx(share * PUBLISHED)
    assert row.rule == "paddleclas-trimmed"
    (answer,) = row.published
    assert answer.reference_samples_per_s == PUBLISHED
    assert answer.ratio == pytest.approx(share)
    assert answer.tolerance == 0.05
    assert answer.rule == "paddleclas-trimmed"


def test_another_rules_figure_never_stands_for_the_published_rules(bench: Bench) -> None:
    figures = {"paddleclas-mean": 500.0, "paddleclas-trimmed": "9 records, expected 21", "honest": 500.0}
    write_log(bench.logs / "V100-LOG" / "a.log", PADDLE, figures)
    row = bench.row(GATE)
    assert row.status == "INCONCLUSIVE"
    assert (row.rule, row.samples_per_s) == ("paddleclas-mean", 500.0)
    assert (row.published[0].measured_samples_per_s, row.published[0].ratio) == (None, None)
    assert "9 records, expected 21" in row.reason


def test_a_rule_with_its_parameter_is_that_rule_and_two_parameters_are_none(bench: Bench) -> None:
    settings = {**MXNET, "framework": "tensorflow", "data": "native", "xla": "true"}
    case_id = "tensorflow-resnet50v1.5-amp-bs256-1x1-native-xla"
    write_log(bench.logs / "V100-LOG" / "a.log", settings, {"ngc-tf-mean:skip=5": 1200.0})
    assert bench.row(case_id).published[0].measured_samples_per_s == 1200.0
    write_log(bench.logs / "V100-LOG" / "a.log", settings, {"ngc-tf-mean:skip=5": 1200.0, "ngc-tf-mean:skip=9": 1100.0})
    assert bench.row(case_id, session="again").published[0].measured_samples_per_s is None


def test_a_rule_over_runs_is_not_kept_by_fewer_logs(bench: Bench) -> None:
    settings = {**PADDLE, "model": "vgg16", "batch_size_per_card": "32"}
    case_id = "paddle-vgg16-fp32-bs32-1x1-native-static"
    for number in range(6):
        write_log(bench.logs / f"V100-LOG/{number}.log", settings, {"fleetx-20-100-median7": 250.0 + number})
    row = bench.row(case_id)
    assert row.status == "INCONCLUSIVE"
    assert "is the median of 7 runs, 6 were made" in row.reason
    assert "6 of the 7 runs that the protocol plans" in row.reason
    write_log(bench.logs / "V100-LOG/6.log", settings, {"fleetx-20-100-median7": 256.0})
    row = bench.row(case_id, session="again")
    assert (row.status, row.runs, row.samples_per_s) == ("PASS", 7, 253.0)
    assert row.published[0].ratio == pytest.approx(253.0 / 252.68)


def test_a_figure_that_is_only_shown_sets_no_status(bench: Bench) -> None:
    write_log(bench.logs / "V100-LOG" / "a.log", {**MXNET, "data": "dali"}, {"ngc-mxnet-epochs": 700.0})
    row = bench.row(SHOWN)
    assert row.status == "NO_BASELINE"
    assert (row.published[0].status, row.published[0].sets_status) == ("BELOW_PUBLISHED", False)


def test_a_log_without_any_figure_is_no_pass(bench: Bench) -> None:
    write_log(bench.logs / "V100-LOG" / "a.log", PADDLE, {"paddleclas-trimmed": "no records"})
    row = bench.row(GATE)
    assert (row.status, row.effect, row.samples_per_s) == ("INFRA_ERROR", "error", None)
    assert "no records" in row.reason


@pytest.mark.parametrize(
    ("gpu", "applies", "told"),
    [
        ("V100", True, "(the log says V100)"),
        ("Tesla V100-SXM2-32GB", True, "V100-SXM2-32GB, paddle"),
        ("V100-SXM2-16GB", False, ""),
        ("V100-PCIE-32GB", False, ""),
        ("A100", False, ""),
        ("", False, ""),
        ("V100-SXM2-32GB MIG 1g.5gb", False, ""),
    ],
)
def test_a_figure_is_of_the_card_as_far_as_the_log_tells_it(bench: Bench, gpu: str, applies: bool, told: str) -> None:
    case = case_of(bench.suite(), GATE, "v100")
    found = published_for(case, [gpu], 0.05)
    assert bool(found) is applies
    assert all(told in each.label for each in found)
    assert published_for(case, [gpu, "A100"], 0.05) == ()


# --- marked everywhere, and no reference for anything


def test_it_is_marked_and_tells_where_it_comes_from(bench: Bench) -> None:
    bench.log("a.log", PADDLE, PUBLISHED)
    row = bench.row(GATE)
    assert row.origin == REPLAYED
    assert row.reason.startswith("replayed from V100-LOG/a.log")
    (source,) = row.sources
    assert source.startswith("V100-LOG/a.log, lines 1-90, nvidia-mxnet, sha256 ")
    assert {each.rule for each in row.figures} == {"paddleclas-trimmed", "honest"}
    assert "few records: 80" in row.warnings
    result = read_result(bench.folder / "runs" / "tonight" / GATE / "r0" / "result.json")
    assert (result.origin, result.target) == (REPLAYED, "v100")
    assert result.facts["setting gpu"] == "V100 (folder name V100-LOG)"
    assert result.verdict is not None
    assert result.verdict["status"] == row.status


def test_no_recorded_figure_is_asked_of_another_programs_log(bench: Bench) -> None:
    bench.log("a.log", PADDLE, PUBLISHED)
    row = bench.row(GATE)
    assert row.recorded is not None
    assert row.recorded.status == "NO_BASELINE"
    assert "not compared, since another program's log holds neither" in row.recorded.reason
    assert "--update-baselines" not in row.reason
    assert row.standing is None


def test_nothing_is_asked_of_the_history_and_nothing_goes_in(bench: Bench) -> None:
    bench.log("a.log", PADDLE, PUBLISHED)
    suite = bench.suite()
    outcome = suite.measure(case_of(suite, GATE, "v100"))
    assert (bench.memory.results, bench.memory.nights, bench.memory.asked) == ([], [], [])
    assert suite.history_notes() == ()
    assert not list((bench.folder / "runs").rglob("night.json"))
    with pytest.raises(BaselineError, match="replayed"):
        suite.propose([outcome])
    with pytest.raises(BaselineError, match="replayed"):
        suite.write_baselines([outcome], [])


def test_to_confirm_a_suspicion_judges_the_logs_again(bench: Bench) -> None:
    bench.log("a.log", PADDLE, PUBLISHED)
    suite = bench.suite()
    case = case_of(suite, GATE, "v100")
    assert suite.confirm(case, "all amp cases fell").reason == suite.measure(case).reason


def test_a_runner_of_logs_has_no_more_runs_than_logs(bench: Bench, tmp_path: Path) -> None:
    case = case_of(bench.suite(), GATE, "v100")
    run = LoggedRun("a.log", imported(PADDLE), imported(PADDLE).settings)
    runner = ReplayRunner(case, [run], ResultStore(tmp_path / "runs", "s"))
    assert runner.run(CasePlan(case), 0).origin == REPLAYED
    with pytest.raises(ResultError, match="run 2"):
        runner.run(CasePlan(case), 1, Build.CANDIDATE, Stage.SCREEN)


# --- a case without a log


def test_it_is_not_run_and_tells_what_came_closest(bench: Bench) -> None:
    bench.log("a.log", PADDLE, PUBLISHED, cards="8")
    bench.log("b.log", PADDLE, PUBLISHED, cards="8", precision="amp_o2")
    row = bench.row(GATE)
    assert (row.status, row.effect, row.origin) == ("not run", "skip", REPLAYED)
    assert row.reason == "no log of this case; closest: V100-LOG/a.log (cards 8, not 1)"
    assert row.samples_per_s is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"framework": "mxnet"}, "no log of paddle resnet50v1.5 on V100 cards"),
        ({"gpu": "A100"}, "no log of paddle resnet50v1.5 on V100 cards"),
        ({"model": "vgg16"}, "no log of paddle resnet50v1.5 on V100 cards"),
        ({"precision": "tf32"}, "precision tf32, not fp32"),
        ({"batch_size_per_card": "128"}, "batch size a card 128, not 256"),
        ({"data": "dali"}, "data dali, not native"),
        ({"execution": "dynamic"}, "execution dynamic, not static"),
        ({"xla": "true"}, "XLA true, not off"),
        ({"cards": "1", "nodes": "2"}, "nodes 2, not 1"),
    ],
)
def test_everything_that_a_log_tells_has_to_agree(bench: Bench, changes: dict[str, str], told: str) -> None:
    write_log(bench.logs / "a.log", {**PADDLE, "gpu": "V100", **changes}, {"paddleclas-trimmed": PUBLISHED})
    row = bench.row(GATE)
    assert row.status == "not run"
    assert told in row.reason


def test_a_log_that_does_not_say_its_card_fits_no_card(bench: Bench) -> None:
    write_log(bench.logs / "a.log", PADDLE, {"paddleclas-trimmed": PUBLISHED})
    row = bench.row(GATE)
    assert row.status == "not run"
    assert "does not say its GPU: --replay-gpu NAME" in row.reason
    assert bench.row(GATE, replay_gpu="V100").status == "PASS"
    assert bench.row(GATE, replay_gpu="A100", session="again").status == "not run"


def test_what_a_log_leaves_open_is_told(bench: Bench) -> None:
    settings = {name: value for name, value in PADDLE.items() if name not in ("data", "execution")}
    bench.log("a.log", settings, PUBLISHED)
    row = bench.row(GATE)
    assert row.status == "PASS"
    assert any("does not tell its data, execution: taken as the case has it" in each for each in row.warnings)


def test_a_log_that_may_be_of_several_cases_is_of_none(bench: Bench) -> None:
    settings = {**MXNET, "framework": "tensorflow", "batch_size_per_card": "224"}
    bench.log("a.log", settings, 900.0)
    row = bench.row("tensorflow-resnet50v1.5-amp-bs224-1x1-dali")
    assert row.status == "not run"
    assert "may be of tensorflow-resnet50v1.5-amp-bs224-1x1-dali-xla" in row.reason
    assert "say its data and execution and xla and nodes in INDEX.csv" in row.reason


def test_a_log_that_may_be_of_a_case_is_told_beside_the_ones_that_are(bench: Bench) -> None:
    settings = {**MXNET, "framework": "tensorflow", "batch_size_per_card": "224"}
    bench.log("a.log", settings, 900.0, data="dali", xla="false")
    bench.log("b.log", settings, 450.0, data="dali")
    row = bench.row("tensorflow-resnet50v1.5-amp-bs224-1x1-dali")
    assert row.run_samples_per_s == (900.0,)
    assert (
        "V100-LOG/b.log does not tell enough: it may be of tensorflow-resnet50v1.5-amp-bs224-1x1-dali-xla" in row.reason
    )


def test_logs_of_two_versions_are_told(bench: Bench) -> None:
    bench.log("a.log", PADDLE, PUBLISHED, framework_version="2.3.0")
    bench.log("b.log", PADDLE, PUBLISHED, framework_version="2.3.0")
    assert "versions of the framework" not in bench.row(GATE).reason
    bench.log("c.log", PADDLE, PUBLISHED, framework_version="2.5.0")
    assert "of 2 versions of the framework: 2.3.0, 2.5.0" in bench.row(GATE, session="again").reason


def test_a_case_that_states_its_data_comes_before_one_that_does_not(bench: Bench) -> None:
    bench.log("a.log", MXNET, 1400.0, data="dali")
    assert bench.row(SHOWN).status == "NO_BASELINE"
    other = bench.row("mxnet-resnet50v1.5-amp-bs256-1x1-unstated")
    assert other.reason == f"no log of this case; closest: V100-LOG/a.log (it is judged as {SHOWN})"


def test_only_step_logs_of_ours_are_of_a_cpu(bench: Bench) -> None:
    write_log(bench.logs / "a.log", {**PADDLE, "batch_size_per_card": "4", "data": "dali", "execution": "dynamic"})
    assert bench.row(CPU_CASE, "cpu").reason == "no log of paddle resnet50v1.5"


def test_what_another_program_never_tells_is_not_assumed() -> None:
    protocol = MeasuringProtocol("p", 1, 1, 1)
    run = LoggedRun("a.log", imported(), imported({**MXNET, "framework": "pytorch", "gpu": "V100"}).settings)
    plain = "pytorch-resnet50v1.5-amp-bs256-1x1-synthetic"
    for feature in ("-compile", "-graphs"):
        case = SuiteCase(Case.parse(plain + feature), "v100", protocol)
        assert fit([case], LogFolder(Path(), (run,))).found == {}
    assert fit([SuiteCase(Case.parse(plain), "v100", protocol)], LogFolder(Path(), (run,))).found


def test_a_card_with_the_case_of_its_own_is_not_any_card() -> None:
    protocol = MeasuringProtocol("p", 1, 1, 1)
    case = SuiteCase(Case.parse("pytorch-resnet50v1.5-amp-bs256-1x1-synthetic"), "gpu", protocol, models=("v100",))
    settings = {**MXNET, "framework": "pytorch"}
    runs = [LoggedRun(gpu, imported(), imported({**settings, "gpu": gpu}).settings) for gpu in ("V100", "H200")]
    fits = fit([case], LogFolder(Path(), tuple(runs)))
    assert [run.name for run in fits.found[case.key].runs] == ["H200"]


# --- the suite


def test_without_a_marker_the_cases_with_logs_are_judged(bench: Bench) -> None:
    bench.log("a.log", PADDLE, PUBLISHED)
    keys, told = bench.suite().selection_here()
    assert keys == {("v100", GATE)}
    assert "the 1 cases that" in told


def test_the_header_says_that_nothing_is_trained_and_what_was_not_read(bench: Bench) -> None:
    bench.log("a.log", PADDLE, PUBLISHED)
    (bench.logs / "README.md").write_text("#")
    head = "\n".join(bench.suite().header_lines())
    assert "REPLAYED: nothing is trained; 1 runs of 2 files" in head
    assert "1 of them as one of 1 cases" in head
    assert "not read: README.md: no format is known" in head


def test_one_case_on_two_targets_is_refused(bench: Bench) -> None:
    case_id = "pytorch-resnet50v1.5-amp-bs256-1x1-synthetic"
    settings = {**MXNET, "framework": "pytorch", "data": "synthetic"}
    bench.log("a.log", settings, 1.0)
    write_log(bench.logs / "b.log", {**settings, "gpu": "A100"})
    suite = bench.suite()
    with pytest.raises(ConfigError, match="two targets"):
        suite.prepare([case_of(suite, case_id, "v100"), case_of(suite, case_id, "a100")])


@pytest.mark.parametrize(("logged", "effect"), [(True, "pass"), (False, "fail")])
def test_under_the_gate_a_case_without_a_log_fails(bench: Bench, logged: bool, effect: str) -> None:
    if logged:
        bench.log("a.log", PADDLE, PUBLISHED)
    suite = bench.suite(gate=f"{{cases: '{GATE}', needs: published, target: v100}}")
    outcome = suite.measure(case_of(suite, GATE, "v100"))
    assert (outcome.effect.value, outcome.judged) == (effect, True)
    assert suite.selection_here()[0] == {("v100", GATE)}


# --- step logs of our own


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


@pytest.fixture
def recorded(bench: Bench, make_run: MakeRun) -> Recorded:
    return Recorded(bench, make_run)


def test_their_figures_are_computed_anew(recorded: Recorded) -> None:
    recorded.session("s1", 0.5, 0.25, 0.5)
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert (row.status, row.rule, row.runs) == ("NO_BASELINE", "wall-clock", 3)
    assert row.run_samples_per_s == pytest.approx((8.0, 16.0, 8.0))
    assert row.origin == REPLAYED
    assert row.step_seconds[0] == pytest.approx((0.5,) * 5)
    assert row.reader_share == pytest.approx(0.02)
    assert "recorded: nothing recorded for this case on this machine" in row.reason
    assert "--update-baselines" not in row.reason
    assert {each.rule for each in row.figures} > {"wall-clock", "median-step", "dlperf-log"}


def test_they_are_held_against_what_this_machine_recorded(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded.record()
    recorded.session("s1", 0.5, 0.5)
    recorded.bench.memory.asked.clear()
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert row.recorded is not None
    assert (row.recorded.status, row.recorded.reference_samples_per_s) == ("PASS", 8.0)
    assert row.status == "PASS"
    # As it was before their own session, which must not be held against itself.
    _, _, segment, _, session = recorded.bench.memory.asked[-1]
    assert session == "s1"
    assert segment["host"] == HOST.host_id
    assert (recorded.bench.memory.results, recorded.bench.memory.nights) == ([], [])
    assert row.standing is None


def test_to_ask_a_history_that_is_not_there_makes_none(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded.record()
    recorded.session("s1", 0.5, 0.5)
    suite = recorded.bench.suite()
    del suite.memory
    assert suite.measure(case_of(suite, CPU_CASE, "cpu")).status is Status.PASS
    assert not (recorded.bench.folder / "runs" / "history.sqlite").exists()


def test_a_drop_is_told_and_nothing_more_is_run(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded.record()
    recorded.session("s1", 0.7)
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert row.status == "INCONCLUSIVE"
    assert "nothing is run beside them" in row.reason
    assert row.runs == 1


def test_those_of_another_machine_are_incomparable(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded.record()
    there = {**recorded.result().environment, "host_id": "f" * 16}
    recorded.session("s1", 0.5, environment=there)
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert row.status == "INCOMPARABLE"
    assert "host" in row.reason


def test_without_a_result_nothing_is_held_against_what_was_recorded(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded.record()
    write_run(recorded.bench.logs / "s1" / CPU_CASE / "r0", CPU_CASE)
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert row.status == "NO_BASELINE"
    assert "without a result.json" in row.reason


def test_nights_are_no_replicates(recorded: Recorded) -> None:
    for number, name in enumerate(("old", "new")):
        recorded.session(name, 0.5 / (number + 1))
        for path in (recorded.bench.logs / name).rglob("rank0.jsonl"):
            os.utime(path, (1000.0 + number, 1000.0 + number))
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert row.run_samples_per_s == pytest.approx((16.0,))
    assert "of 2 sessions with this case the newest is judged, new, not old" in row.reason


@pytest.mark.parametrize(
    ("field", "status", "effect"), [("failure", "INFRA_ERROR", "error"), ("invalid", "INVALID", "error")]
)
def test_what_broke_stays_broken(recorded: Recorded, field: str, status: str, effect: str) -> None:
    recorded.session("s1", 0.5, **{field: "killed"})
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert (row.status, row.effect) == (status, effect)
    assert "killed" in row.reason


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ([{}, {"invalid": "throttled"}, {"invalid": "throttled"}], "NO_BASELINE"),
        ([{}, *[{"invalid": "throttled"}] * 3], "INVALID"),
        ([{}, {"failure": "killed", "facts": {FAILURE_FACT: "killed by a signal"}}], "NO_BASELINE"),
        ([{}, *[{"failure": "killed", "facts": {FAILURE_FACT: "killed by a signal"}}] * 2], "INFRA_ERROR"),
        ([{}, {"failure": "crashed"}], "INFRA_ERROR"),
        ([{"failure": "killed", "facts": {FAILURE_FACT: "killed by a signal"}}], "INFRA_ERROR"),
        ([{"invalid": "throttled"}] * 2, "INVALID"),
        (
            [{"invalid": "throttled"}, {"failure": "killed", "facts": {FAILURE_FACT: "killed by a signal"}}],
            "INFRA_ERROR",
        ),
    ],
)
def test_nothing_that_ended_a_live_case_is_hidden(
    recorded: Recorded, fields: list[dict[str, Any]], status: str
) -> None:
    """perf.yaml: an invalid run is made again twice, one that an infrastructure failure ended once."""
    recorded.session("s1", *[0.5] * len(fields))
    for number, changes in enumerate(fields):
        folder = recorded.bench.logs / "s1" / CPU_CASE / f"r{number}"
        write_result(folder, recorded.result(session="s1", replicate=number), uuid=f"s1{number}", **changes)
    assert recorded.bench.row(CPU_CASE, "cpu").status == status


def test_what_never_started_stays_so(recorded: Recorded) -> None:
    folder = recorded.bench.logs / "s1" / CPU_CASE / "r0"
    folder.mkdir(parents=True)
    for name in ("spec.json", "output.log"):
        (folder / name).write_text("{}")
    write_result(folder, recorded.result(session="s1"), failure="never started")
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert (row.status, row.effect) == ("INFRA_ERROR", "error")
    assert row.reason == f"replayed from s1/{CPU_CASE}/r0 (1 of the 2 runs that the protocol plans): never started"


def test_a_damaged_run_is_told_beside_the_others(recorded: Recorded) -> None:
    recorded.session("s1", 0.5, 0.5)
    (recorded.bench.logs / "s1" / CPU_CASE / "r0" / "rank0.jsonl").write_text("{")
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert row.runs == 1
    assert f"s1/{CPU_CASE}/r0 beside them could not be read" in row.reason


def test_a_run_of_another_case_of_the_model_is_the_closest(recorded: Recorded) -> None:
    recorded.session("s1", 0.5)
    row = recorded.bench.row(CPU_CASE.replace("bs4", "bs8"), "cpu")
    assert row.reason == f"no log of this case; closest: s1/{CPU_CASE}/r0 (its case is {CPU_CASE})"


@pytest.mark.parametrize("share", [1.02, 0.951, 0.949, 0.5])
def test_a_replayed_step_log_is_judged_as_the_run_that_wrote_it(bench: Bench, share: float) -> None:
    """The published question: status, figure, reference, tolerance, ratio and what decides, and the case's status."""
    card = "Tesla V100-SXM2-32GB"
    seconds = [256 / (share * PUBLISHED)] * 340
    folder = write_run(
        bench.logs / "s1" / GATE / "r0", GATE, seconds, device="gpu", batch=256, facts={"device_name": card}
    )
    logs = [read_step_log(folder / "rank0.jsonl")]
    suite = bench.suite()
    case = case_of(suite, GATE, "v100")
    tolerance = suite.config.tolerances.published_for(GATE)
    live = RunResult("job", "s1", GATE, "v100", 0, "2024-05-06T07:08:09+00:00", figures=figures(logs))
    plan = CasePlan(case, published=published_references(case.figures, card, tolerance))
    verdict = judge(evidence_of(plan, (live,)))
    assert isinstance(verdict, Verdict)
    row = row_of(suite.measure(case))
    (answer,) = row.published
    (expected,) = verdict.published
    assert (answer.status, answer.measured_samples_per_s, answer.reference_samples_per_s, answer.tolerance) == (
        expected.status.value,
        expected.measured,
        expected.reference,
        expected.tolerance,
    )
    assert (answer.rule, answer.label, answer.sets_status) == (expected.rule, expected.label, expected.sets_status)
    assert answer.reason == expected.reason.message
    assert row.status == verdict.status.value == ("PASS" if share > 0.95 else "BELOW_PUBLISHED")


def test_what_was_invalid_and_made_again_is_judged_by_the_rest(recorded: Recorded) -> None:
    recorded.session("s1", 0.5, 0.5)
    folder = recorded.bench.logs / "s1" / CPU_CASE / "r0"
    write_result(folder, recorded.result(session="s1"), uuid="s10", invalid="throttled")
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert (row.status, row.runs) == ("NO_BASELINE", 1)
    assert row.set_aside[0].startswith("r0: throttled; invalid: ")


def test_a_disturbed_run_keeps_its_mark_and_stays_out_of_a_gate(recorded: Recorded) -> None:
    recorded.session("s1", 0.5, marks=(CONTENDED,), contention="40% by cc1")
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert row.marks == ("contended in 1 of 1 runs: 40% by cc1",)
    assert row.status == "NO_BASELINE"
    gated = recorded.bench.row(CPU_CASE, "cpu", gate=f"{{cases: '{CPU_CASE}', needs: recorded}}", session="again")
    assert (gated.status, gated.effect) == ("INVALID", "error")


def test_a_confirmation_is_judged_again_with_its_pairs(recorded: Recorded, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded.record()
    good = {"interpreter": "/envs/good/bin/python", "framework": "paddle", "version": "3.0.0", "commit": "abcdef"}
    new = {**good, "interpreter": "/envs/new/bin/python", "commit": "123456"}
    plan = [("candidate", "screen", 0.6)]
    for number in range(8):
        plan += [("reference", "confirm", 0.5 + 1e-4 * number), ("candidate", "confirm", 0.6 + 1e-4 * number)]
    for number, (role, stage, seconds) in enumerate(plan):
        folder = write_run(recorded.bench.logs / "s1" / CPU_CASE / f"r{number}", CPU_CASE, seconds, job_id=f"j{number}")
        build = good if role == "reference" else new
        result = recorded.result(session="s1", replicate=number, role=role, stage=stage, build=build)
        write_result(folder, result, uuid=f"j{number}")
    row = recorded.bench.row(CPU_CASE, "cpu")
    assert row.status == "REGRESSION", row.reason
    assert len(row.pairs) == 8
    assert row.effect == "fail"
    assert math.isclose(row.pairs[0].reference_samples_per_s, 8.0)


def test_the_recording_code_refuses_what_was_replayed(recorded: Recorded) -> None:
    recorded.session("s1", 0.5, 0.5)
    suite = recorded.bench.suite()
    outcome = suite.measure(case_of(suite, CPU_CASE, "cpu"))
    options, config = suite.options, suite.config
    plain = Suite(options, config, recorded.bench.published, machine=MACHINE, memory=recorded.bench.memory)
    (proposal,) = plain.propose([outcome])
    assert proposal.kind is ProposalKind.REFUSED
    assert proposal.reason == "replayed from logs: a baseline holds what this machine measured"
