"""The GPU proof without a GPU and without training: its steps, going on, deadlines, what is right, the summary."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.commands.proof import steps as proof_steps
from helpers.commands.proof.bench import _variables
from helpers.commands.proof.plan import LIBRARIES, RANKS, STATISTICS, ProofStep, StepKind, steps_here
from helpers.commands.proof.probing import ProbeAnswer
from helpers.commands.proof.records import StepRecord, not_run, read_state, write_state
from helpers.commands.proof.steps import run_step
from helpers.commands.proof.summary import ProofReport, not_reached, seen, summary
from helpers.commands.prove_gpu import exit_status, go_on, time_limit, wanted_steps
from helpers.history.results import RunResult
from helpers.judging.parts.differences import Difference, Kind
from helpers.judging.parts.explanation import Explanation
from helpers.judging.parts.step_parts import Amount, Grain, Part
from helpers.judging.statistics import Interval
from helpers.machine.environment import GPU
from helpers.machine.nvml import Gpu
from helpers.plan.perf_yaml import load_config
from helpers.report.row import CaseRow
from helpers.session.explain.case import CaseExplanation
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.errors import ConfigError, DeviceError, LaunchError, ResultError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import SLOWDOWN_VARIABLE
from helpers.trainers.contract.step_profile import Phase
from tests import nvml_stub
from tests.helpers.machines import GIB, gpu_machine

H100 = Gpu(0, "GPU-aa", "NVIDIA H100 80GB HBM3", 80 * GIB, (9, 0), 700)
A100 = Gpu(0, "GPU-bb", "NVIDIA A100-SXM4-40GB", 40 * GIB, (8, 0), 400)
V100 = Gpu(0, "GPU-cc", "Tesla V100-SXM2-32GB", 32 * GIB, (7, 0), 300)
ON_H100 = gpu_machine((H100,))
ABOUT = {"device": "gpu", "machine": "m"}
STEPS = steps_here((A100,), 1)
FIRST = next(step for step in STEPS if step.kind is StepKind.MEASURE and step.case.framework is Framework.PYTORCH)


def record(key: str, status: str = "PASS", **values: Any) -> StepRecord:
    return StepRecord(**{"key": key, "status": status, "right": True, "settled": True, "message": "no drop", **values})


def step_of(kind: StepKind) -> ProofStep:
    return next(step for step in STEPS if step.kind is kind)


# ---- the steps


@pytest.mark.parametrize(
    ("gpu", "pytorch", "paddle"),
    [
        (V100, {"amp", "fp32"}, {"amp_o2", "amp_o1", "fp32"}),
        (A100, {"bf16", "amp", "tf32"}, {"amp_o2", "amp_o1", "fp32"}),
        (replace(V100, compute_capability=(6, 0)), {"fp32"}, {"fp32"}),
    ],
    ids=lambda value: value.name if isinstance(value, Gpu) else None,
)
def test_the_precisions_are_those_of_the_card(gpu: Gpu, pytorch: set[str], paddle: set[str]) -> None:
    cases = [step.case for step in steps_here((gpu,), 1)]
    for framework, expected in ((Framework.PYTORCH, pytorch), (Framework.PADDLE, paddle)):
        assert {case.precision.value for case in cases if case.framework is framework} == expected


def test_paddles_probes_come_first_and_each_has_a_limit() -> None:
    first = steps_here((A100, A100), 1)[:6]
    assert [step.key for step in first if not step.key.startswith("trains")] == [LIBRARIES, STATISTICS, RANKS]
    assert all(step.most_seconds for step in first)
    assert RANKS not in {step.key for step in STEPS}


def test_the_batches_fit_into_the_cards_memory() -> None:
    """By the rule that 256 images of ResNet50 take 12 GB with 2 bytes a value, 24 GB with 4."""
    gpu = replace(V100, memory_bytes=8 * GIB)
    for step in steps_here((gpu,), 1):
        each = 96 if step.case.precision.value == "fp32" else 48
        fits = step.case.batch_size_per_card * each * 2**20 <= gpu.memory_bytes
        assert fits is (step.kind is not StepKind.TOO_LARGE), step.key


def test_recorded_cases_stand_in_the_matrix_with_the_same_steps() -> None:
    config = load_config(ROOT / "helpers/plan/defaults.yaml")
    for step in (each for each in STEPS if each.kind is StepKind.MEASURE):
        (entry,) = [each for each in config.matrix if (each.target, each.case) == ("gpu", step.case)]
        ours = config.protocols[entry.protocol]
        assert replace(ours, name=step.protocol.name, runs=step.protocol.runs) == step.protocol


@pytest.mark.slow
@nvml_stub.needs_compiler
def test_the_command_plans_by_what_the_drivers_library_says(tmp_path: Path) -> None:
    nvml_stub.nvml_library(tmp_path, nvml_stub.machine_of(nvml_stub.V100_16, 1))
    argv = [sys.executable, "-m", "helpers.commands", "prove-gpu", "--plan"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert "pytorch-resnet50v1.5-amp-bs256-1x1-synthetic" in done.stdout
    assert "bf16" not in done.stdout


# ---- going on


@pytest.fixture
def said() -> list[str]:
    return []


def test_each_step_is_kept_before_the_next_and_a_second_call_does_the_rest(tmp_path: Path, said: list[str]) -> None:
    done: list[str] = []

    def until_third(step: ProofStep) -> StepRecord:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(step.key)
        return record(step.key)

    def keep() -> None:
        write_state(tmp_path, ABOUT, records.values())

    records: dict[str, StepRecord] = {}
    go_on(STEPS, records, until_third, keep, said.append)
    assert read_state(tmp_path, ABOUT) == records
    assert list(records) == done == [step.key for step in STEPS[:2]]
    go_on(STEPS, records, lambda step: done.append(step.key) or record(step.key), keep, said.append)  # type: ignore[func-returns-value]
    assert done == [step.key for step in STEPS]


def test_a_step_that_the_proof_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'--step': got 'expalin', expected one of .*explain"):
        wanted_steps(STEPS, ["explain", "expalin"])
    assert wanted_steps(STEPS, None) == STEPS


def test_the_time_limit_interrupts_the_step_in_hand(said: list[str]) -> None:
    def hangs(step: ProofStep) -> StepRecord:
        signal.pause()
        return record(step.key)

    usual = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGALRM)}
    records: dict[str, StepRecord] = {}
    try:
        with time_limit(1):
            go_on(STEPS, records, hangs, lambda: None, said.append)
    finally:
        for each, handler in usual.items():
            signal.signal(each, handler)
    assert records == {}
    assert "a second call goes on" in said[-1]


def test_a_step_that_breaks_is_told_and_the_next_one_begins(said: list[str]) -> None:
    def breaks(step: ProofStep) -> StepRecord:
        if step is FIRST:
            raise DeviceError("NVML", got="lost")
        return record(step.key)

    records: dict[str, StepRecord] = {}
    go_on((FIRST, STEPS[0]), records, breaks, lambda: None, said.append)
    first = records[FIRST.key]
    assert (first.wrong, first.settled, first.message) == (True, False, "DeviceError: NVML: got 'lost'")
    assert records[STEPS[0].key].right


@pytest.mark.parametrize(
    ("records", "missing", "status"),
    [
        ([record("a")], 0, 0),
        ([record("a")], 2, 7),
        ([record("a"), record("b", "not run", right=False)], 0, 7),
        ([record("a"), record("b", right=False)], 2, 1),
    ],
)
def test_a_wrong_step_outranks_a_missing_one_and_one_that_was_not_run_is_not_passed(
    records: list[StepRecord], missing: int, status: int
) -> None:
    assert exit_status(records, missing) == status


def test_a_state_of_another_machine_is_refused(tmp_path: Path) -> None:
    write_state(tmp_path, ABOUT, [])
    with pytest.raises(ResultError, match=r"field 'about'.*Name another folder with --out"):
        read_state(tmp_path, {**ABOUT, "machine": "other"})


# ---- a step's answer


class Bench:
    """A bench that answers with one row."""

    def __init__(self, folder: Path, **values: Any) -> None:
        self.folder, self.machine, self.device = folder, ON_H100, GPU
        usual = {"case_id": "c", "target": GPU, "effect": "pass", "code": "", "reason": "so", "status": "PASS"}
        self.row = CaseRow(**{**usual, **values})
        self.why: str | None = None
        self.answer = ProbeAnswer("")
        self.explained: CaseExplanation | None = None

    def why_not(self, step: ProofStep) -> str | None:
        return self.why

    def ask_probe(self, step: ProofStep) -> ProbeAnswer:
        return self.answer

    def measure(self, step: ProofStep) -> CaseRow:
        return self.row

    def explain(self, step: ProofStep) -> CaseExplanation:
        assert self.explained is not None
        return self.explained

    def interpreter(self, step: ProofStep) -> str:
        return "python"

    def within(self, folder: str) -> str:
        return folder

    def profiled_runs(self, step: ProofStep) -> tuple[str, ...]:
        return ("runs/explain/explained/c/r0",)


def answer(step: ProofStep, folder: Path, **values: Any) -> StepRecord:
    return run_step(Bench(folder, **values), step)  # type: ignore[arg-type]


NOT_FITTING: dict[str, Any] = {"status": "INFRA_ERROR", "reason": "out of GPU memory: rank 0 failed"}


@pytest.mark.parametrize(
    ("kind", "values", "right", "settled"),
    [
        (StepKind.REPEAT, {"status": "PASS"}, True, True),
        (StepKind.REPEAT, {"status": "INCONCLUSIVE"}, True, True),
        (StepKind.REPEAT, {"status": "REGRESSION"}, False, True),
        (StepKind.REPEAT, {"status": "INVALID"}, False, False),
        (StepKind.REPEAT, {"status": "NO_BASELINE"}, False, False),
        (StepKind.SLOWED, {"status": "REGRESSION"}, True, True),
        (StepKind.SLOWED, {"status": "PASS"}, False, True),
        (StepKind.SLOWED, {"status": "INCONCLUSIVE"}, False, True),
        (StepKind.MEASURE, {"status": "NO_BASELINE", "samples_per_s": 9.0}, True, True),
        (StepKind.MEASURE, {"status": "NO_BASELINE"}, False, True),
        (StepKind.MEASURE, {"status": "INVALID"}, False, False),
        (StepKind.MEASURE, {"status": "INFRA_ERROR"}, False, False),
        (StepKind.MEASURE, NOT_FITTING, False, True),
        (StepKind.TOO_LARGE, NOT_FITTING, True, True),
        (StepKind.TOO_LARGE, {"status": "PASS", "samples_per_s": 9.0}, False, True),
        (StepKind.NEIGHBOUR, {"status": "INVALID", "reason": "contended: 30% by others"}, True, True),
        (StepKind.NEIGHBOUR, {"status": "PASS", "samples_per_s": 9.0}, False, False),
    ],
)
def test_a_step_is_right_by_what_its_kind_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: StepKind, values: dict[str, Any], right: bool, settled: bool
) -> None:
    @contextmanager
    def beside(*_: object) -> Iterator[int]:
        yield 1

    monkeypatch.setattr(proof_steps, "neighbour", beside)
    found = answer(step_of(kind), tmp_path, **values)
    assert (found.right, found.settled) == (right, settled)


def _profiled(phases: tuple[Phase, ...]) -> CaseExplanation:
    """A comparison of profiles in which these phases take 20 ms of a step of 100 ms."""
    found = tuple(
        Difference(
            Part(Grain.PHASE, phase), Kind.SLOWER, Amount(0.02), Amount(0.02), Interval(0.0, -0.001, 0.001), p_value=1.0
        )
        for phase in phases
    )
    answer = Explanation(6, 0.1, Interval(0.0, -0.001, 0.001), (), (), 9, (0.1, 0.1), found)
    return CaseExplanation("c", GPU, "good", "good", answer, runs=12, steps=5, profiler="a profiler")


@pytest.mark.parametrize(
    ("found", "right"),
    [
        (_profiled((Phase.FORWARD, Phase.BACKWARD)), True),
        (_profiled((Phase.FORWARD,)), False),
        (CaseExplanation("c", GPU, "good", "good", None, "recorded no kernel"), False),
    ],
)
def test_profiles_are_right_if_forward_and_backward_are_most_of_a_step(
    tmp_path: Path, found: CaseExplanation, right: bool
) -> None:
    bench = Bench(tmp_path)
    bench.explained = found
    record = run_step(bench, step_of(StepKind.EXPLAIN))  # type: ignore[arg-type]
    assert (record.right, record.settled) == (right, right)
    assert record.run_folders == ("runs/explain/explained/c/r0",)


def test_a_case_that_cannot_run_here_is_not_run_neither_right_nor_wrong_and_is_asked_again(tmp_path: Path) -> None:
    for kind in StepKind:
        bench = Bench(tmp_path, samples_per_s=1.0)
        bench.why = "no DALI"
        found = run_step(bench, step_of(kind))  # type: ignore[arg-type]
        assert (found.status, found.right, found.wrong, found.settled) == ("not run", False, False, False)
        assert found.message == "no DALI"


@pytest.mark.parametrize(
    ("answer", "status", "right"),
    [
        (ProbeAnswer("computed"), "MEASURED", True),
        (ProbeAnswer("computed", ("cuDNN is 9, the build is for 8",)), "MEASURED", False),
        (ProbeAnswer("", (), "this build has no such pass"), "not run", False),
        (ProbeAnswer("", ("wrong",), "and not run"), "MEASURED", False),
    ],
)
def test_a_probe_with_a_fault_is_wrong_and_one_with_nothing_to_probe_not_run(
    tmp_path: Path, answer: ProbeAnswer, status: str, right: bool
) -> None:
    bench = Bench(tmp_path)
    bench.answer = answer
    found = run_step(bench, STEPS[0])  # type: ignore[arg-type]
    assert (found.status, found.right) == (status, right)


def test_the_slowdown_is_over_with_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SLOWDOWN_VARIABLE, raising=False)
    with pytest.raises(LaunchError), _variables(step_of(StepKind.SLOWED)):
        assert os.environ[SLOWDOWN_VARIABLE] == "0.05"
        raise LaunchError("a job")
    assert SLOWDOWN_VARIABLE not in os.environ


# ---- the summary


def measured(uuid: str = H100.uuid) -> RunResult:
    facts = {"sm_clock_mhz": "1980", "loader": "DALI 2.4.0, 4 threads, decoding on GPU (mixed)"}
    return RunResult(
        uuid="u", session="s", case_id=FIRST.case.id, target=GPU, replicate=0, created="now", facts=facts,
        environment={"card_ids": uuid, "framework": "pytorch", "cuda": "12.8"},
        peak_device_bytes=20 * GIB, step_seconds=(0.09, 0.091), reader_share=0.01,
    )  # fmt: skip


def story(records: list[StepRecord], *runs: RunResult) -> ProofReport:
    return ProofReport(ON_H100, GPU, STEPS, {each.key: each for each in records}, runs, "today")


def test_what_the_runs_say_of_the_card_is_told_and_what_they_do_not_say_too() -> None:
    found = seen(story([], measured()))
    assert found["runs"] == "1, with 2 steps timed by the card's events"
    assert found["leased cards"] == "GPU-aa"
    assert found["peak of device memory"] == "20.0 GiB"
    assert found["sm_clock_mhz"] == "1980"
    assert found["not_measured"] == "NOT SEEN"
    assert "GPU-other" in seen(story([], measured("GPU-other")))["leased cards"].partition("NO CARD")[2]


def test_the_summary_has_figures_wrong_steps_and_what_was_not_reached() -> None:
    slowed = record("slowed", "PASS", right=False, message="no drop | at all")
    unable = not_run(step_of(StepKind.EXPLAIN), "no profiler")
    told = story([record(FIRST.key, "NO_BASELINE", figure="2800 images/s (n=2)"), slowed, unable], measured())
    text = summary(told)
    assert f"2 of {len(STEPS)} steps done on NVIDIA H100 80GB HBM3, until today. **Wrong: slowed.**" in text
    assert f"| {FIRST.key} | 2800 images/s (n=2) | NO_BASELINE | as it must be: no drop |" in text
    assert "| slowed | - | PASS | WRONG: no drop \\| at all |" in text
    assert {"explain: no profiler", "neighbour: not reached"} <= set(not_reached(told))
