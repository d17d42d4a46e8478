"""The GPU proof without a GPU and without training: order, going on, deadlines, what is told of whom."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from helpers.commands.proof import PROBES, Proof, ProofStep, StepKind
from helpers.commands.proof.bench import ProofBench, _variables, write_config
from helpers.commands.proof.plan import LIBRARIES, PROGRAMS, RANKS, STATISTICS, Here, proof_here
from helpers.commands.proof.probing import ProbeAnswer
from helpers.commands.proof.steps import ProofState, StepRecord, StepRunner, not_run, read_state
from helpers.commands.proof.summary import ProofReport, not_reached, seen, summary
from helpers.commands.prove_gpu import (
    Deadline,
    ProofRun,
    exit_status,
    wanted_steps,
)
from helpers.history.results import RunResult
from helpers.judging.case.verdict import Status
from helpers.judging.parts.differences import Difference
from helpers.judging.parts.explanation import Explanation
from helpers.judging.parts.kinds import Kind
from helpers.judging.parts.step_parts import Amount, Grain, Part
from helpers.judging.statistics import Interval
from helpers.machine.devices import Machine
from helpers.machine.environment import GPU
from helpers.machine.nvml import Gpu
from helpers.plan.perf_yaml import Config, load_config
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
V100_16 = replace(V100, name="Tesla V100-SXM2-16GB", memory_bytes=16 * GIB)
ON_H100 = gpu_machine((H100,))
ABOUT = {"device": "gpu", "machine": "m"}
PROOF = proof_here(Here((A100,)))
ON_CPU = proof_here(Here(cpu_cards=2))
FIRST = next(step for step in PROOF.steps if step.case and step.case.framework is Framework.PYTORCH)


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


def test_the_batches_fit_into_the_cards_memory() -> None:
    """By the rule that 256 images of ResNet50 take 12 GB with 2 bytes a value, 24 GB with 4."""
    gpus = (replace(V100, memory_bytes=8 * GIB),)
    for step in proof_here(Here(gpus)).steps:
        may_be_too_large = step.may_not_fit or step.kind in (StepKind.TOO_LARGE, StepKind.REFUSED)
        if step.case is None or may_be_too_large:
            continue
        each = 96 if step.case.precision.value == "fp32" else 48
        assert step.case.batch_size_per_card * each * 2**20 <= gpus[0].memory_bytes, step.key


def test_a_framework_without_code_for_the_card_is_not_run_and_says_why() -> None:
    proof = proof_here(Here((H100,), unable={Framework.PADDLE: "NVIDIA H100 is sm_90, … is for sm_61 to sm_86"}))
    assert {step.case.framework for step in proof.steps if step.case} == {Framework.PYTORCH}
    # Programs need no card.
    assert proof.steps[0].key == PROGRAMS
    assert proof.left_out == ("paddle, 6 steps: NVIDIA H100 is sm_90, … is for sm_61 to sm_86",)


def test_the_cpu_has_the_same_parts_or_says_why_not() -> None:
    missing = {step.part for step in PROOF.steps} - {step.part for step in ON_CPU.steps}
    assert missing <= {each.partition(":")[0] for each in ON_CPU.left_out}
    only_on_gpus = {StepKind.TOO_LARGE, StepKind.EXPLAIN}
    assert {step.kind for step in ON_CPU.steps} == {step.kind for step in PROOF.steps} - only_on_gpus


@pytest.mark.slow
def test_the_copy_of_perf_yaml_that_is_brought_back_has_no_password_and_is_its_owner_s(tmp_path: Path) -> None:
    text = (ROOT / "helpers/plan/defaults.yaml").read_text(encoding="utf-8")
    given = yaml.safe_load(text)
    given["history"] = {"url": "postgresql://me:Pa55word@db/perf"}
    given["builds"] = {"commit_url": "https://me:Pa55word@wheels.example/{commit}/x.whl?sig=Pa55word"}
    source = tmp_path / "perf.yaml"
    source.write_text(yaml.safe_dump(given), encoding="utf-8")
    source.chmod(0o600)
    (tmp_path / "out").mkdir()
    umask = os.umask(0)
    try:
        path = write_config(tmp_path / "out", source, {})
    finally:
        os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o600
    assert "Pa55word" not in path.read_text(encoding="utf-8")
    assert load_config(path).history.url == "postgresql://me:***@db/perf"


MEASURED = [step for step in PROOF.steps if step.kind is StepKind.MEASURE]


def test_recorded_cases_stand_in_the_matrix_with_the_same_steps() -> None:
    config = load_config(ROOT / "helpers/plan/defaults.yaml")
    for step in MEASURED:
        assert_in_matrix(config, step)


def assert_in_matrix(config: Config, step: ProofStep) -> None:
    assert step.case is not None and step.protocol is not None
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
    lines = done.stdout.splitlines()
    pytorch = [line for line in lines if "ResNet50 on synthetic data: pytorch-" in line]
    assert pytorch[0].endswith("pytorch-resnet50v1.5-amp-bs256-1x1-synthetic")
    assert sum(": refused-" in line for line in lines) == 4


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
    with pytest.raises(ResultError, match=r"field 'about'.*Name another folder with --out"):
        read_state(tmp_path, {**ABOUT, "machine": "other"})


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
    ("found", "right", "message"),
    [
        (_profiled((Phase.FORWARD, Phase.BACKWARD)), True, "NOT SLOWER"),
        (_profiled((Phase.FORWARD,)), False, "NOT SLOWER"),
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


@pytest.mark.parametrize("status", ["INVALID", "INFRA_ERROR"])
def test_a_case_that_was_disturbed_is_wrong_and_tried_again(tmp_path: Path, status: str) -> None:
    found = answer(FIRST, tmp_path, status=status, samples_per_s=None)
    assert (found.right, found.settled) == (False, False)


def test_a_batch_that_does_not_fit_is_told_and_not_tried_again(tmp_path: Path) -> None:
    values: dict[str, Any] = {"status": "INFRA_ERROR", "reason": "out of GPU memory: rank 0 failed"}
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


@pytest.mark.slow
def test_without_paddle_no_program_is_wrong_but_the_step_is_not_run(bench: ProofBench, tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=False)
    write_config(
        tmp_path, ROOT / "helpers/plan/defaults.yaml", {Framework.PADDLE: str(tmp_path / "empty" / "bin" / "python")}
    )
    record = StepRunner(bench).run(step_of(StepKind.PROGRAMS))
    assert (record.status, record.wrong) == (Status.NOT_RUN.value, False)
    assert "paddle" in record.message
    assert exit_status([record], 0) == 7


# ---- what is told


def measured(uuid: str = H100.uuid) -> RunResult:
    facts = {
        "sm_clock_mhz": "1980", "memory_clock_mhz": "2619", "gpu_temperature_c": "55", "gpu_hottest_c": "57",
        "gpu_power_watts": "650", "gpu_uncorrected_ecc": "0", "gpu_clocks_held_by": "software power cap 98%",
        "not_measured": "Xid errors", "loader": "DALI 2.4.0, 4 threads, decoding on GPU (mixed)",
    }  # fmt: skip
    return result(
        str(FIRST.case), facts=facts, environment={"card_ids": uuid, "framework": "pytorch", "cuda": "12.8"},
        peak_device_bytes=20 * GIB, step_seconds=(0.09, 0.091), reader_share=0.01,
    )  # fmt: skip


def story(machine: Machine, proof: Proof, records: list[StepRecord], *runs: RunResult) -> ProofReport:
    kept = {each.key: each for each in records}
    return ProofReport(machine, proof, kept, runs, "today")


FIGURE = record(FIRST.key, "NO_BASELINE", case_id=FIRST.key, samples_per_s=2800.0, run_samples_per_s=(2790.0, 2810.0))


def test_what_the_runs_say_of_the_card_is_told_and_what_they_do_not_say_too() -> None:
    found = seen(story(ON_H100, PROOF, [FIGURE], measured()))
    assert found["runs"] == "1, with 2 steps timed by the card's events"
    assert found["leased cards"] == "GPU-aa"
    assert found["peak of device memory"] == f"20.0 GiB ({FIRST.case})"
    assert found["SM clock in the window (MHz)"] == "1980"
    assert found["reader"] == "DALI 2.4.0, 4 threads, decoding on GPU (mixed)"
    assert found["active NVLinks"] == "**not seen**"
    assert (
        "no card of this machine: GPU-other" in seen(story(ON_H100, PROOF, [], measured("GPU-other")))["leased cards"]
    )


def test_the_summary_has_figures_wrong_steps_and_what_was_not_reached() -> None:
    slowed = record("slowed", "PASS", right=False, message="no drop | at all")
    repeats = [record(f"repeat-{n}", run_samples_per_s=(2800.0 + n,), case_id=FIRST.key) for n in range(1, 11)]
    unable = not_run(step_of(StepKind.EXPLAIN), "no profiler")
    told = story(ON_H100, PROOF, [FIGURE, slowed, *repeats, unable], measured())
    text = summary(told)
    assert f"12 of {len(PROOF.steps)} steps done on NVIDIA H100 80GB HBM3, until today. **Wrong: slowed.**" in text
    assert f"| `{FIRST.key}` | 2800 (n=2) | - | - | NO_BASELINE | as it must be: no drop |" in text
    assert "| `slowed`, by 5% | - | - | - | PASS | **WRONG**: no drop \\| at all |" in text
    lines = not_reached(told)
    vgg16 = ", ".join(f"pytorch-vgg16-{each}-bs128-1x1-synthetic" for each in ("bf16", "amp", "tf32"))
    assert f"VGG16: {vgg16}" in lines
    assert "explain: no profiler" in lines
    others = [not_run(step_of(StepKind.SLOWED), "no profiler"), unable]
    assert "slowed, explain: no profiler" in not_reached(story(ON_H100, PROOF, others, measured()))


# ---- beside the suite


def test_the_slowdown_is_over_with_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SLOWDOWN_VARIABLE, raising=False)
    with pytest.raises(LaunchError), _variables(step_of(StepKind.SLOWED)):
        assert os.environ[SLOWDOWN_VARIABLE] == "0.05"
        raise LaunchError("a job")
    assert SLOWDOWN_VARIABLE not in os.environ
