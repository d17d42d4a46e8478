"""The GPU proof without a GPU and without training: order, going on, deadlines, what is told of whom."""

from __future__ import annotations

import argparse
import io
import os
import signal
import subprocess
import sys
import tarfile
import venv
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.commands import prove_gpu
from helpers.commands.proof import PROBES, Proof, ProofStep, StepKind
from helpers.commands.proof import bench as proof_bench
from helpers.commands.proof.bench import ProofBench, _variables, write_config
from helpers.commands.proof.plan import LIBRARIES, PROGRAMS, RANKS, STATISTICS, Here, proof_here
from helpers.commands.proof.probing import ProbeAnswer
from helpers.commands.proof.steps import UTILISATION, ProofState, StepRecord, StepRunner, failed, not_run, read_state
from helpers.commands.proof.summary import ProofEvidence, ProofReport, gpu_parts, not_reached, shares, summary
from helpers.commands.prove_gpu import (
    Deadline,
    ProofRun,
    _line,
    ask_doctor,
    device_of,
    exit_status,
    pack,
    wanted_steps,
)
from helpers.history.results import RunResult
from helpers.judging.explanation import Explanation
from helpers.judging.kinds import Kind
from helpers.judging.profile_differences import Difference
from helpers.judging.profile_parts import Amount, Level, Part
from helpers.judging.statistics import Interval
from helpers.judging.utilisation import Peak, Utilisation
from helpers.judging.verdict import Status
from helpers.machine.devices import Machine
from helpers.machine.environment import CPU, GPU
from helpers.machine.frameworks import FrameworkBuild
from helpers.machine.nvml import Gpu
from helpers.plan.case_plan import SuiteCase
from helpers.plan.perf_yaml import load_config
from helpers.report.row import CaseRow
from helpers.session.explain import CaseExplanation
from helpers.session.explain_runs import ExplainRequest
from helpers.session.suite import Suite
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError, DeviceError, LaunchError, ResultError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import SLOWDOWN_VARIABLE
from helpers.trainers.contract.step_profile import Phase
from tests import nvml_stub
from tests.helpers.machines import CPU_MACHINE, GIB, gpu_machine

H100 = Gpu(0, "GPU-aa", "NVIDIA H100 80GB HBM3", 80 * GIB, (9, 0), 700)
A100 = Gpu(0, "GPU-bb", "NVIDIA A100-SXM4-40GB", 40 * GIB, (8, 0), 400)
V100 = Gpu(0, "GPU-cc", "Tesla V100-SXM2-32GB", 32 * GIB, (7, 0), 300)
V100_16 = replace(V100, name="Tesla V100-SXM2-16GB", memory_bytes=16 * GIB)
ON_H100 = gpu_machine((H100,))
ABOUT = {"device": "gpu", "machine": "m"}
PROOF = proof_here(Here((A100,)))
ON_CPU = proof_here(Here(cpu_cards=2))
FIRST = next(step for step in PROOF.steps if step.case and step.case.framework is Framework.PYTORCH)
PEAK = Peak("bf16", GPU, H100.name, H100.uuid, 800.0, 8192, 10, "torch.matmul", "2.13.0")


def record(key: str, status: str = "PASS", **values: Any) -> StepRecord:
    return StepRecord(**{"key": key, "status": status, "right": True, "settled": True, "message": "no drop", **values})


def run_of(
    bench: ProofBench, run_step: Callable[[ProofStep], StepRecord], steps: tuple[ProofStep, ...] = PROOF.steps
) -> ProofRun:
    seconds: Iterator[int] = iter(range(0, 10_000, 7))
    bench = replace(bench, proof=replace(bench.proof, steps=steps))
    return ProofRun(bench, run_step, wanted_steps(bench.proof, None), clock=lambda: float(next(seconds)))


def result(case_id: str, **values: Any) -> RunResult:
    return RunResult(uuid="u", session="s", case_id=case_id, target=GPU, replicate=0, created="now", **values)


@pytest.fixture
def bench(tmp_path: Path) -> ProofBench:
    return ProofBench(tmp_path, PROOF, ON_H100)


# ---- the plan


def precisions(proof: Proof, framework: Framework, *kinds: StepKind) -> set[str]:
    cases = (step.case for step in proof.steps if step.kind in kinds)
    return {case.precision.value for case in cases if case is not None and case.framework is framework}


@pytest.mark.parametrize(
    ("gpu", "pytorch", "refused"),
    [
        (V100_16, {"amp", "fp32"}, {"tf32", "bf16"}),
        (V100, {"amp", "fp32"}, {"tf32", "bf16"}),
        (A100, {"bf16", "amp", "tf32"}, set()),
        (H100, {"bf16", "amp", "tf32"}, set()),
        (replace(V100, compute_capability=(6, 0)), {"fp32"}, {"tf32", "bf16", "amp_o2"}),
    ],
    ids=lambda value: value.name if isinstance(value, Gpu) else None,
)
def test_the_precisions_are_those_of_the_card_and_the_others_must_be_refused(
    gpu: Gpu, pytorch: set[str], refused: set[str]
) -> None:
    proof = proof_here(Here((gpu,)))
    others = tuple(kind for kind in StepKind if kind is not StepKind.REFUSED)
    assert precisions(proof, Framework.PYTORCH, *others) == pytorch
    assert precisions(proof, Framework.PADDLE, StepKind.REFUSED) == refused
    assert not precisions(proof, Framework.PADDLE, *others) & refused


def test_paddles_probes_come_first_and_each_has_a_limit() -> None:
    for gpu, rows in ((V100, ("v100",)), (A100, ("a100",))):
        probes = [step for step in proof_here(Here((gpu, gpu))).steps if step.part == PROBES]
        assert [step.key for step in probes][:3] == [LIBRARIES, PROGRAMS, STATISTICS]
        trained = [(case.precision.value, case.data.value) for step in probes[3:6] if (case := step.case)]
        assert trained == [("amp_o2", "dali"), ("fp32", "native"), ("amp_o1", "native")]
        assert probes[6].key == RANKS and probes[1].targets == rows
        assert all(step.most_seconds for step in probes)
        assert proof_here(Here((gpu, gpu))).steps[: len(probes)] == tuple(probes)


@pytest.mark.parametrize("gpus", [(V100_16,), (V100,), (replace(V100, memory_bytes=8 * GIB),)])
def test_the_batches_fit_into_the_cards_memory(gpus: tuple[Gpu, ...]) -> None:
    """By the rule that 256 images of ResNet50 take 12 GB with 2 bytes a value, 24 GB with 4."""
    for step in proof_here(Here(gpus)).steps:
        may_be_too_large = step.may_not_fit or step.kind in (StepKind.TOO_LARGE, StepKind.REFUSED)
        if step.case is None or may_be_too_large:
            continue
        each = 96 if step.case.precision.value == "fp32" else 48
        assert step.case.batch_size_per_card * each * 2**20 <= gpus[0].memory_bytes, step.key


def test_the_weakest_of_several_cards_decides() -> None:
    assert precisions(proof_here(Here((A100, V100_16))), Framework.PYTORCH, StepKind.MEASURE) == {"amp", "fp32"}


def test_a_framework_without_code_for_the_card_is_not_run_and_says_why() -> None:
    proof = proof_here(Here((H100,), unable={Framework.PADDLE: "NVIDIA H100 is sm_90, … is for sm_61 to sm_86"}))
    assert {step.case.framework for step in proof.steps if step.case} == {Framework.PYTORCH}
    # Programs need no card.
    assert proof.steps[0].key == PROGRAMS
    assert proof.left_out == ("paddle, 6 steps: NVIDIA H100 is sm_90, … is for sm_61 to sm_86",)


def test_what_is_not_given_is_left_out_and_says_so() -> None:
    assert [line.partition(":")[0] for line in PROOF.left_out] == ["two-cards", "paddleclas"]
    whole = proof_here(Here((A100, A100), has_paddleclas=True))
    assert not whole.left_out and {"two-cards", "paddleclas"} <= {step.key for step in whole.steps}


def test_the_parts_of_pytorch_stand_in_the_order_of_their_weight() -> None:
    parts = list(dict.fromkeys(step.part for step in PROOF.steps))
    assert parts[:8] == [
        PROBES,
        "Paddle",
        "ResNet50 on synthetic data",
        "ten A/A repeats of one case",
        "an injected slowdown",
        "real data through DALI",
        "VGG16",
        "other batch sizes",
    ]
    assert sum(step.kind is StepKind.REPEAT for step in PROOF.steps) == 10


def test_the_cpu_has_the_same_parts_or_says_why_not() -> None:
    missing = {step.part for step in PROOF.steps} - {step.part for step in ON_CPU.steps}
    assert missing <= {each.partition(":")[0] for each in ON_CPU.left_out}
    only_on_gpus = {StepKind.TOO_LARGE, StepKind.EXPLAIN}
    assert {step.kind for step in ON_CPU.steps} == {step.kind for step in PROOF.steps} - only_on_gpus


@pytest.mark.parametrize("proof", [PROOF, proof_here(Here((V100,))), ON_CPU], ids=["a100", "v100", "cpu"])
def test_keys_are_one_steps_own_and_fit_as_a_sessions_name(proof: Proof) -> None:
    keys = [step.key for step in proof.steps]
    assert len(set(keys)) == len(keys)
    assert all(len(key) <= 100 and "/" not in key for key in keys)


def test_only_what_is_measured_is_held_against_peaks_which_all_steps_share(bench: ProofBench, tmp_path: Path) -> None:
    write_config(tmp_path, ROOT / "perf.yaml", {Framework.PYTORCH: "some/python"})
    first, repeat = (bench._suite(step_of(kind)).options for kind in (StepKind.MEASURE, StepKind.REPEAT))
    assert (first.utilisation, repeat.utilisation) == (True, False)
    assert first.session != repeat.session and first.peaks_folder == repeat.peaks_folder == str(tmp_path / "peaks")


def test_a_gpu_is_taken_where_there_is_one_and_nothing_else_was_asked_for() -> None:
    assert device_of(ON_H100, cpu=False) == GPU
    assert device_of(ON_H100, cpu=True) == CPU
    assert device_of(CPU_MACHINE, cpu=False) == CPU


MEASURED = [step for step in PROOF.steps if step.kind is StepKind.MEASURE]


@pytest.mark.parametrize("step", MEASURED, ids=lambda step: step.key)
def test_a_recorded_case_stands_in_the_matrix_with_the_same_steps(step: ProofStep) -> None:
    config = load_config(ROOT / "perf.yaml")
    assert step.case is not None and step.protocol is not None
    (entry,) = [each for each in config.matrix if (each.target, each.case) == ("gpu", step.case)]
    ours = config.protocols[entry.protocol]
    assert replace(ours, name=step.protocol.name, runs=step.protocol.runs) == step.protocol


class Wheels:
    """A finder of builds that finds Paddle's GPU wheel 2.6.2 and a PyTorch with code for every card."""

    def find_build(self, framework: Framework, interpreter: str | None) -> FrameworkBuild | str:
        if framework is Framework.PADDLE:
            return FrameworkBuild("python", framework, "paddlepaddle-gpu", "2.6.2")
        return FrameworkBuild("python", framework, "torch", "2.10.0")

    def find_libraries(self, build: FrameworkBuild) -> dict[str, str]:
        archs = {} if build.framework is Framework.PADDLE else {"archs": "70 80 90"}
        return {"cuda": "11.8" if build.framework is Framework.PADDLE else "12.8", **archs}


def plan_of(monkeypatch: pytest.MonkeyPatch, machine: Machine, *options: str) -> list[str]:
    """What ``perfgate prove-gpu --plan`` prints on the machine."""
    monkeypatch.setattr(prove_gpu, "discover", lambda: machine)
    monkeypatch.setattr(prove_gpu, "BuildFinder", Wheels)
    parser = argparse.ArgumentParser()
    prove_gpu.add_arguments(parser)
    arguments = parser.parse_args(["--plan", *options])
    arguments.config, arguments.baselines = ROOT / "perf.yaml", ROOT / "baselines"
    out = io.StringIO()
    assert prove_gpu.run(arguments, out) == 0
    return out.getvalue().splitlines()


def test_the_plan_of_a_v100_is_printed_and_nothing_is_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = plan_of(monkeypatch, gpu_machine((V100_16,)), "--out", str(tmp_path / "none"))
    assert lines[:6] == [
        "[1/38] the probes of Paddle: libraries (paddle-resnet50v1.5-amp_o2-bs256-1x1-synthetic-dynamic)",
        "[2/38] the probes of Paddle: programs",
        "[3/38] the probes of Paddle: statistics (paddle-resnet50v1.5-amp_o2-bs256-1x1-synthetic-dynamic)",
        "[4/38] the probes of Paddle: trains-paddle-resnet50v1.5-amp_o2-bs128-1x1-dali-static",
        "[5/38] the probes of Paddle: trains-paddle-resnet50v1.5-fp32-bs64-1x1-native-static",
        "[6/38] the probes of Paddle: trains-paddle-vgg16-amp_o1-bs64-1x1-native-static",
    ]
    assert sum(": refused-" in line for line in lines) == 4
    assert lines[-2:] == [
        "not run: two-cards: one card",
        "not run: paddleclas: no checkout of PaddleClas was given (--paddleclas FOLDER)",
    ]
    assert not (tmp_path / "none").exists()


def test_on_an_a100_nothing_is_refused_and_two_cards_train_together(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = plan_of(monkeypatch, gpu_machine((A100, replace(A100, index=1, uuid="GPU-b2"))), "--paddleclas", "clas")
    assert not any("refused-" in line or "not run" in line for line in lines)
    assert any(": two-cards (paddle-resnet50v1.5-amp_o2-bs128-1x2-dali-static)" in line for line in lines)
    assert any(": paddleclas (paddle-resnet50v1.5-amp_o2-bs256-1x1-dali-static)" in line for line in lines)


def test_on_an_h100_paddle_2_6_has_no_code_and_only_its_programs_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = plan_of(monkeypatch, ON_H100)
    assert [line for line in lines if "paddle" in line.lower() and not line.startswith("not run")] == [
        "[1/30] the probes of Paddle: programs"
    ]
    why = "NVIDIA H100 80GB HBM3 is sm_90, paddlepaddle-gpu 2.6.2 is for sm_61 to sm_86"
    assert lines[-1] == f"not run: paddle, 6 steps: {why}: install a build for this card"


def test_a_driver_that_is_too_old_for_a_build_leaves_its_steps_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = plan_of(monkeypatch, replace(gpu_machine((A100,)), driver="460.32.03", cuda_driver="11.2"))
    assert not any("pytorch" in line for line in lines if not line.startswith("not run"))
    (why,) = [line for line in lines if line.startswith("not run: pytorch, ")]
    assert "torch 2.10.0 cannot run: the NVIDIA driver is 460.32.03; a build for CUDA 12.8 needs " in why


@nvml_stub.needs_compiler
@pytest.mark.parametrize(
    ("card", "count", "first", "refused"),
    [
        (nvml_stub.V100_16, 1, "pytorch-resnet50v1.5-amp-bs256-1x1-synthetic", 4),
        (nvml_stub.A100, 2, "pytorch-resnet50v1.5-bf16-bs256-1x1-synthetic", 0),
        (nvml_stub.H100, 1, "pytorch-resnet50v1.5-bf16-bs256-1x1-synthetic", 0),
    ],
)
def test_the_command_plans_by_what_the_drivers_library_says(
    tmp_path: Path, card: nvml_stub.StubCard, count: int, first: str, refused: int
) -> None:
    nvml_stub.nvml_library(tmp_path, nvml_stub.machine_of(card, count))
    argv = [sys.executable, "-m", "helpers.commands", "prove-gpu", "--plan"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert lines[0].partition("] ")[2].startswith("the probes of Paddle: libraries (paddle-resnet50v1.5-amp_o2-bs256-")
    pytorch = [line for line in lines if "ResNet50 on synthetic data: pytorch-" in line]
    assert pytorch[0].endswith(first)
    assert sum(": refused-" in line for line in lines) == refused
    assert ("not run: two-cards: one card" in lines) is (count == 1)


# ---- going on


def test_each_step_is_on_disk_before_the_next_and_a_second_call_does_the_rest(
    bench: ProofBench, tmp_path: Path
) -> None:
    done: list[str] = []

    def until_third(step: ProofStep) -> StepRecord:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(step.key)
        return record(step.key)

    state = run_of(bench, until_third).go_on(ProofState(ABOUT), Deadline(None))
    assert read_state(tmp_path, ABOUT) == state
    assert list(state.records) == done == [step.key for step in PROOF.steps[:2]]
    again: list[str] = []
    state = run_of(bench, lambda step: again.append(step.key) or record(step.key)).go_on(state, Deadline(None))  # type: ignore[func-returns-value]
    assert again == [step.key for step in PROOF.steps[2:]]
    assert len(state.records) == len(PROOF.steps)


def test_what_was_not_settled_is_tried_again(bench: ProofBench) -> None:
    state = ProofState(ABOUT).with_record(record(FIRST.key, "INFRA_ERROR", right=False, settled=False))
    asked: list[str] = []
    run_of(bench, lambda step: asked.append(step.key) or record(step.key), (FIRST,)).go_on(state, Deadline(None))  # type: ignore[func-returns-value]
    assert asked == [FIRST.key]


def test_only_the_steps_that_were_asked_for_run(bench: ProofBench) -> None:
    asked: list[str] = []
    proving = run_of(bench, lambda step: asked.append(step.key) or record(step.key))  # type: ignore[func-returns-value]
    keys = [step.key for step in bench.proof.steps[:2]]
    wanted = wanted_steps(bench.proof, keys[1:])
    state = replace(proving, wanted=wanted).go_on(ProofState(ABOUT), Deadline(None))
    assert asked == list(state.records) == keys[1:]


def test_a_step_that_the_proof_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'--step': got 'expalin', expected one of .*explain"):
        wanted_steps(PROOF, ["explain", "expalin"])
    assert wanted_steps(PROOF, None) == {step.key for step in PROOF.steps}


def test_nothing_begins_once_the_time_is_over(bench: ProofBench) -> None:
    now = [0.0]
    deadline = Deadline(100.0, clock=lambda: now[0])

    def slow(step: ProofStep) -> StepRecord:
        now[0] += 60.0
        return record(step.key)

    state = run_of(bench, slow).go_on(ProofState(ABOUT), deadline)
    assert len(state.records) == 2


def test_the_deadline_interrupts_the_step_in_hand(bench: ProofBench, capsys: pytest.CaptureFixture[str]) -> None:
    def hangs(step: ProofStep) -> StepRecord:
        signal.pause()
        return record(step.key)

    usual = signal.getsignal(signal.SIGINT)
    try:
        state = run_of(bench, hangs).go_on(ProofState(ABOUT), Deadline(0.1))
    finally:
        signal.signal(signal.SIGINT, usual)
    assert state.records == {}
    assert "the time is over - a second call goes on" in capsys.readouterr().out


def test_a_step_that_breaks_is_told_and_the_next_one_begins(bench: ProofBench) -> None:
    def breaks(step: ProofStep) -> StepRecord:
        if step is FIRST:
            raise DeviceError("NVML", got="lost")
        return record(step.key)

    state = run_of(bench, breaks, (FIRST, PROOF.steps[0])).go_on(ProofState(ABOUT), Deadline(None))
    first = state.records[FIRST.key]
    assert (first.status, first.right, first.settled) == ("ERROR", False, False)
    assert first.message == "DeviceError: NVML: got 'lost'"
    assert state.records[PROOF.steps[0].key].right


@pytest.mark.parametrize(
    ("records", "missing", "status"),
    [
        ([record("a")], 0, 0),
        ([record("a")], 2, 7),
        ([record("a"), record("b", "not run", right=False)], 0, 7),
        ([record("a"), record("b", right=False)], 2, 1),
        ([], 5, 7),
    ],
)
def test_a_wrong_step_outranks_a_missing_one_and_one_that_was_not_run_is_not_passed(
    records: list[StepRecord], missing: int, status: int
) -> None:
    assert exit_status(records, missing) == status


def test_a_state_of_another_machine_is_refused(tmp_path: Path) -> None:
    ProofState(ABOUT).write(tmp_path)
    with pytest.raises(ResultError, match=r"field 'machine': got 'm', expected other\. Name another folder with --out"):
        read_state(tmp_path, {**ABOUT, "machine": "other"})


@pytest.mark.parametrize("text", ["", "[]", '{"state_version": 1, "about": {}, "records": [{}]}'])
def test_a_damaged_state_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(ResultError, match=r"state\.json"):
        read_state(tmp_path, ABOUT)


# ---- a step's answer


class Session:
    """A bench that answers with one row."""

    def __init__(self, folder: Path, **values: Any) -> None:
        self.folder = folder
        self.row = CaseRow(**{"case_id": "c", "target": GPU, "effect": "pass", "code": "", "reason": "so", **values})
        self.why: str | None = None
        self.answer = ProbeAnswer("")

    def why_not(self, step: ProofStep) -> str | None:
        return self.why

    def ask_probe(self, step: ProofStep) -> ProbeAnswer:
        return self.answer

    def measure(self, step: ProofStep) -> CaseRow:
        return self.row

    def within(self, folder: str) -> str:
        return folder

    def profiled_runs(self, step: ProofStep) -> tuple[str, ...]:
        return ("runs/explain/explained/c/r0",)


def answer(step: ProofStep, folder: Path, **values: Any) -> StepRecord:
    return StepRunner(Session(folder, **values)).run(step)  # type: ignore[arg-type]


def step_of(kind: StepKind) -> ProofStep:
    return next(step for step in PROOF.steps if step.kind is kind)


@pytest.mark.parametrize(
    ("kind", "status", "right"),
    [
        (StepKind.REPEAT, Status.PASS, True),
        (StepKind.REPEAT, Status.INCONCLUSIVE, True),
        (StepKind.REPEAT, Status.REGRESSION, False),
        (StepKind.REPEAT, Status.INVALID, False),
        (StepKind.SLOWED, Status.REGRESSION, True),
        (StepKind.SLOWED, Status.PASS, False),
        (StepKind.SLOWED, Status.INCONCLUSIVE, False),
    ],
)
def test_the_good_build_raises_no_alarm_and_the_slowed_one_does(
    tmp_path: Path, kind: StepKind, status: Status, right: bool
) -> None:
    assert answer(step_of(kind), tmp_path, status=status.value, samples_per_s=9.0).right is right


def test_a_repeat_of_a_case_that_nothing_has_recorded_is_tried_again(tmp_path: Path) -> None:
    record = answer(step_of(StepKind.REPEAT), tmp_path, status="NO_BASELINE", samples_per_s=9.0)
    assert (record.right, record.settled) == (False, False)


def _profiled(phases: tuple[Phase, ...]) -> CaseExplanation:
    """A comparison of profiles in which these phases take 20 ms of a step of 100 ms."""
    found = tuple(
        Difference(
            Part(Level.PHASE, phase), Kind.SLOWER, Amount(0.02), Amount(0.02), Interval(0.0, -0.001, 0.001), p_value=1.0
        )
        for phase in phases
    )
    answer = Explanation(6, 0.1, Interval(0.0, -0.001, 0.001), (), (), 9, (0.1, 0.1), found)
    return CaseExplanation("c", GPU, "good", "good", answer, runs=12, steps=5, profiler="a profiler")


@pytest.mark.parametrize(
    ("found", "right", "message"),
    [
        (_profiled((Phase.FORWARD, Phase.BACKWARD)), True, "NOT SLOWER"),
        (_profiled((Phase.FORWARD,)), False, "NOT SLOWER"),
        (_profiled((Phase.FORWARD, Phase.BACKWARD, Phase.OTHER, Phase.HOST_GAP)), False, "NOT SLOWER"),
        (CaseExplanation("c", GPU, "good", "good", None, "recorded no kernel"), False, "recorded no kernel"),
    ],
)
def test_profiles_are_right_if_forward_and_backward_are_most_of_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: CaseExplanation, right: bool, message: str
) -> None:
    monkeypatch.setattr(Session, "explain", lambda session, step: found, raising=False)
    record = answer(step_of(StepKind.EXPLAIN), tmp_path, status="PASS")
    assert (record.right, record.settled) == (right, right)
    assert message in record.message
    if right:
        assert record.extra == {"forward": 0.02, "backward": 0.02}
    assert record.run_folders == ("runs/explain/explained/c/r0",)


def test_profiled_runs_are_those_that_have_a_result(bench: ProofBench, tmp_path: Path) -> None:
    step = step_of(StepKind.EXPLAIN)
    for name in ("r0", "r1"):
        (tmp_path / "runs" / step.key / "explained" / "c" / name).mkdir(parents=True)
    (tmp_path / "runs" / step.key / "explained" / "c" / "r1" / "result.json").touch()
    assert bench.profiled_runs(step) == ("runs/explain/explained/c/r1",)


def test_profiles_are_of_one_build_on_both_sides(
    bench: ProofBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_config(tmp_path, ROOT / "perf.yaml", {Framework.PYTORCH: sys.executable})
    asked: list[Any] = []

    def explained(suite: Suite, case: SuiteCase, request: ExplainRequest, say: Any) -> CaseExplanation:
        options = suite.options
        # A second call goes on with the pairs of the first.
        assert options.resume and not options.allow_contention
        asked.append((options.reference_env, options.same_build, request.pairs, str(case.case)))
        return _profiled((Phase.FORWARD, Phase.BACKWARD))

    monkeypatch.setattr(proof_bench, "explain_case", explained)
    step = step_of(StepKind.EXPLAIN)
    assert bench.explain(step).runs == 12
    assert asked == [(str(tmp_path / "good-python"), True, 6, str(step.case))]
    assert (tmp_path / "runs" / step.key / "explain.md").exists()


def test_a_case_with_a_figure_is_right_and_settled(tmp_path: Path) -> None:
    found = answer(FIRST, tmp_path, status="NO_BASELINE", samples_per_s=2800.0)
    assert (found.right, found.settled, found.samples_per_s) == (True, True, 2800.0)


@pytest.mark.parametrize("status", ["INVALID", "INFRA_ERROR"])
def test_a_case_that_was_disturbed_is_wrong_and_tried_again(tmp_path: Path, status: str) -> None:
    found = answer(FIRST, tmp_path, status=status, samples_per_s=None)
    assert (found.right, found.settled) == (False, False)


def test_a_batch_that_does_not_fit_is_told_and_not_tried_again(tmp_path: Path) -> None:
    values: dict[str, Any] = {"status": "INFRA_ERROR", "failure_class": "out of GPU memory"}
    other = next(step for step in PROOF.steps if step.may_not_fit)
    assert [answer(step, tmp_path, **values).right for step in (FIRST, other, step_of(StepKind.TOO_LARGE))] == [
        False, True, True,
    ]  # fmt: skip
    assert answer(FIRST, tmp_path, **values).settled
    assert not answer(step_of(StepKind.TOO_LARGE), tmp_path, status="PASS", samples_per_s=1.0).right


def test_a_case_that_cannot_run_here_is_not_run_neither_right_nor_wrong_and_is_asked_again(tmp_path: Path) -> None:
    for step in (FIRST, step_of(StepKind.REPEAT), step_of(StepKind.TRAINS)):
        session = Session(tmp_path, status="PASS", samples_per_s=1.0)
        session.why = "no DALI"
        found = StepRunner(session).run(step)  # type: ignore[arg-type]
        assert (found.status, found.right, found.wrong, found.settled) == ("not run", False, False, False)
        assert found.message == "no DALI"


@pytest.mark.parametrize(
    ("why", "reason", "right"),
    [
        ("bf16 needs compute capability 8.0, this card has 7.0", "", True),
        (None, "refused: bf16 needs compute capability 8.0, Tesla V100 has 7.0", True),
        (None, "no drop", False),
        ("paddle is not installed", "", False),
    ],
)
def test_a_refusal_for_the_cards_capability_is_right_and_nothing_else(
    tmp_path: Path, why: str | None, reason: str, right: bool
) -> None:
    step = next(step for step in proof_here(Here((V100,))).steps if step.kind is StepKind.REFUSED)
    session = Session(tmp_path, status="INFRA_ERROR", reason=reason)
    session.why = why
    found = StepRunner(session).run(step)  # type: ignore[arg-type]
    assert (found.right, found.wrong) == (right, not right)


@pytest.mark.parametrize(
    ("answer", "status", "right", "message"),
    [
        (ProbeAnswer("computed"), "MEASURED", True, "computed"),
        (ProbeAnswer("computed", ("cuDNN is 9, the build is for 8",)), "MEASURED", False, "cuDNN is 9, the build"),
        (ProbeAnswer("", (), "this build has no such pass"), "not run", False, "this build has no such pass"),
        (ProbeAnswer("", ("wrong",), "and not run"), "MEASURED", False, "wrong"),
    ],
)
def test_a_probe_with_a_fault_is_wrong_and_one_with_nothing_to_probe_not_run(
    tmp_path: Path, answer: ProbeAnswer, status: str, right: bool, message: str
) -> None:
    session = Session(tmp_path, status="PASS")
    session.answer = answer
    found = StepRunner(session).run(PROOF.steps[0])  # type: ignore[arg-type]
    assert (found.status, found.right) == (status, right)
    assert found.message.startswith(message)


def test_without_paddle_no_program_is_wrong_but_the_step_is_not_run(bench: ProofBench, tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=False)
    write_config(tmp_path, ROOT / "perf.yaml", {Framework.PADDLE: str(tmp_path / "empty" / "bin" / "python")})
    record = StepRunner(bench).run(step_of(StepKind.PROGRAMS))
    assert (record.status, record.wrong) == (Status.NOT_RUN.value, False)
    assert "paddle" in record.message
    assert exit_status([record], 0) == 7


# ---- what is told


def measured(uuid: str = H100.uuid) -> RunResult:
    facts = {
        "sm_clock_mhz": "1980", "memory_clock_mhz": "2619", "gpu_temperature_c": "55", "gpu_hottest_c": "57",
        "gpu_power_watts": "650", "gpu_uncorrected_ecc": "0", "gpu_clocks_held_by": "software power cap 98%",
        "not_measured": "Xid errors", "peak_uuid": uuid, "loader": "DALI 2.4.0, 4 threads, decoding on GPU (mixed)",
    }  # fmt: skip
    return result(
        str(FIRST.case), facts=facts, environment={"card_ids": uuid, "framework": "pytorch", "cuda": "12.8"},
        peak_device_bytes=20 * GIB, step_seconds=(0.09, 0.091), reader_share=0.01,
    )  # fmt: skip


def story(machine: Machine, proof: Proof, records: list[StepRecord], *runs: RunResult) -> ProofReport:
    kept = {each.key: each for each in records}
    doctor = {"system": {"pytorch": {"version": "2.13.0"}}, "findings": []}
    return ProofReport(ProofEvidence(machine, proof, kept, runs), doctor, "today")


FIGURE = record(FIRST.key, "NO_BASELINE", case_id=FIRST.key, samples_per_s=2800.0, run_samples_per_s=(2790.0, 2810.0))


def test_everything_is_found_on_a_card_that_showed_it() -> None:
    records = [
        FIGURE,
        record("neighbour", "INVALID", message="contended: python (pid 7)"),
        record("too-large", "INFRA_ERROR", message="out of GPU memory: tried to allocate 26 GiB"),
        record("explain", "MEASURED", message="NOT SLOWER"),
    ]
    graphs = replace(measured(), case_id=f"{FIRST.key}-graphs")
    found = gpu_parts(story(ON_H100, PROOF, records, measured(), graphs).evidence)
    assert [sight.name for sight in found if not sight.found] == []
    told = {sight.name: sight.message for sight in found}
    assert told["device discovery by NVML"].startswith("NVIDIA H100 80GB HBM3, 80.0 GiB, sm_90; driver ")
    assert told["clock samples in the window"] == "SM 1980 to 1980 MHz over 2 runs, memory 2619 MHz"
    assert told["CUDA_VISIBLE_DEVICES"] == "the only card that PyTorch saw: GPU-aa"
    assert told["a batch that does not fit is reported as such"].startswith("out of GPU memory")


def test_without_a_gpu_nothing_is_found_and_the_summary_says_so_first() -> None:
    on_cpu = ON_CPU
    told = story(CPU_MACHINE, on_cpu, [record("neighbour", "INVALID", extra={"named": True})])
    assert [sight.found for sight in gpu_parts(told.evidence)] == [False] * len(gpu_parts(told.evidence))
    text = summary(told)
    assert text.splitlines()[2].startswith("**Nothing here ran on a GPU: no libnvidia-ml.so.1.**")
    assert all(f"- {line}" in text for line in on_cpu.left_out)
    assert "a process beside the job on the cores was seen" in text
    others = story(CPU_MACHINE, on_cpu, [record("neighbour", "INVALID", extra={"named": False})])
    assert "on the cores was seen, but not named" in summary(others)
    assert "on the cores has not been seen" in summary(story(CPU_MACHINE, on_cpu, []))


def test_another_card_than_the_lease_is_not_found() -> None:
    found = {sight.name: sight.found for sight in gpu_parts(story(ON_H100, PROOF, [], measured("GPU-other")).evidence)}
    assert not found["leases by UUID"]
    assert not found["CUDA_VISIBLE_DEVICES"]


def test_the_utilisation_is_the_sessions_own(tmp_path: Path) -> None:
    share = Utilisation.of(2800.0, "wall-clock", Case.parse(FIRST.key), PEAK)
    found = answer(FIRST, tmp_path, case_id=FIRST.key, status="NO_BASELINE", samples_per_s=2800.0, utilisation=share)
    slowed = record("slowed", "REGRESSION", case_id=FIRST.key, samples_per_s=1400.0, extra={UTILISATION: "none"})
    told = shares(story(ON_H100, PROOF, [found, slowed], measured()))
    assert told == {FIRST.key: "8.5% of the measured bf16 peak (800 TFLOP/s)"}
    assert shares(story(ON_H100, PROOF, [FIGURE], measured())) == {FIRST.key: "no measured peak"}


def test_the_summary_has_figures_wrong_steps_and_what_was_not_reached() -> None:
    slowed = record("slowed", "PASS", right=False, message="no drop | at all")
    repeats = [record(f"repeat-{n}", run_samples_per_s=(2800.0 + n,), case_id=FIRST.key) for n in range(1, 11)]
    unable = not_run(step_of(StepKind.BARE_LOOP), "no loop")
    told = story(ON_H100, PROOF, [FIGURE, slowed, *repeats, unable], measured())
    text = summary(told)
    assert f"12 of {len(PROOF.steps)} steps done on NVIDIA H100 80GB HBM3, until today. **Wrong: slowed.**" in text
    assert f"| `{FIRST.key}` | 2800 (n=2) | no measured peak | - | NO_BASELINE |" in text
    assert "10 PASS." in text and "mean 2806, deviation 0.11%" in text
    assert "- a build slowed down on purpose, by 5%: PASS (WRONG): no drop \\| at all" in text
    lines = not_reached(told)
    vgg16 = ", ".join(f"pytorch-vgg16-{each}-bs128-1x1-synthetic" for each in ("bf16", "amp", "tf32"))
    assert f"VGG16: {vgg16}" in lines
    assert "bare-loop: no loop" in lines
    others = [not_run(step_of(StepKind.SLOWED), "no loop"), unable]
    assert "slowed, bare-loop: no loop" in not_reached(story(ON_H100, PROOF, others, measured()))


# ---- beside the suite


def test_the_slowdown_is_over_with_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SLOWDOWN_VARIABLE, raising=False)
    with pytest.raises(LaunchError), _variables(step_of(StepKind.SLOWED)):
        assert os.environ[SLOWDOWN_VARIABLE] == "0.05"
        raise LaunchError("a job")
    assert SLOWDOWN_VARIABLE not in os.environ


def test_the_configuration_names_the_given_python(tmp_path: Path) -> None:
    write_config(tmp_path, ROOT / "perf.yaml", {Framework.PYTORCH: "some/python"})
    found = load_config(tmp_path / "perf.yaml").frameworks[Framework.PYTORCH].interpreter
    assert found == str(Path("some/python").absolute())


def test_one_file_has_everything_but_images_and_what_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "proof"
    for name in ("images/a.jpeg", "runs/s/result.json", "summary.md", "good-python", "gpu-proof.tar.gz", ".lock"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    with tarfile.open(pack(folder)) as archive:
        assert [m.name for m in archive.getmembers() if m.isfile()] == ["proof/runs/s/result.json", "proof/summary.md"]


def test_a_doctor_that_gives_no_answer_ends_the_proof(tmp_path: Path) -> None:
    config = tmp_path / "perf.yaml"
    config.write_text("nonsense: 1\n")
    with pytest.raises(ConfigError, match="nonsense"):
        ask_doctor(tmp_path, argparse.Namespace(config=config, baselines=ROOT / "baselines"))


def test_an_error_is_a_record_of_its_step() -> None:
    assert failed(FIRST, OSError("no room")).message == "OSError: no room"


@pytest.mark.usefixtures("models_of_sentences")
def test_the_unit_is_that_of_the_models_samples() -> None:
    repeats = [record(f"repeat-{n}", run_samples_per_s=(2800.0 + n,), case_id=FIRST.key) for n in range(1, 11)]
    text = summary(story(ON_H100, PROOF, [FIGURE, *repeats], measured()))
    assert "| case | sentences/s (95% interval, runs) |" in text and "sentences/s: 2801, 2802" in text
    assert _line(FIGURE) == "NO_BASELINE: 2800 sentences/s; no drop"
