"""The GPU proof without a GPU and without training: its steps, going on, deadlines, what is right, the summary."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from helpers.commands.proof import steps as proof_steps
from helpers.commands.proof.bench import _variables, ask_probe
from helpers.commands.proof.plan import LIBRARIES, RANKS, STATISTICS, ProofStep, StepKind, steps_here
from helpers.commands.proof.records import StepRecord, not_reached, read_state, seen, summary, write_state
from helpers.commands.proof.steps import look_at, run_step
from helpers.commands.prove_gpu import exit_status, go_on, time_limit, wanted_steps
from helpers.history.results import RunResult
from helpers.machine.environment import GPU
from helpers.machine.nvml import Gpu
from helpers.plan.perf_yaml import load_config
from helpers.report.row import CaseRow
from helpers.trainers.contract import ROOT
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.errors import ConfigError, DeviceError, LaunchError, ResultError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import SLOWDOWN_VARIABLE, JobSpec
from helpers.trainers.contract.program import COUNTED, PROGRAM_COUNTS_FACT, counts_text
from helpers.trainers.contract.steplog import COMPLETE, WARMUP, WINDOW, Footer, Header, Heartbeat, Step, StepLogWriter
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
    return StepRecord(**{"key": key, "status": status, "right": True, "message": "no drop", **values})


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
        assert step.case.batch_size_per_card * each * 2**20 <= gpu.memory_bytes, step.key


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
    with pytest.raises(ConfigError, match=r"'--step': got 'slwoed', expected one of .*slowed"):
        wanted_steps(STEPS, ["slowed", "slwoed"])
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
    assert (first.wrong, first.message) == (True, "DeviceError: NVML: got 'lost'")
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
        self.answer: tuple[list[str], str, str] = ([], "", "")

    def why_not(self, step: ProofStep) -> str | None:
        return self.why

    def ask_probe(self, step: ProofStep) -> tuple[list[str], str, str]:
        return self.answer

    def measure(self, step: ProofStep) -> CaseRow:
        return self.row

    def interpreter(self, step: ProofStep) -> str:
        return "python"

    def within(self, folder: str) -> str:
        return folder


@pytest.mark.parametrize(
    ("kind", "values", "right"),
    [
        (StepKind.REPEAT, {"status": "PASS"}, True),
        (StepKind.REPEAT, {"status": "INCONCLUSIVE"}, True),
        (StepKind.REPEAT, {"status": "REGRESSION"}, False),
        (StepKind.REPEAT, {"status": "NO_BASELINE"}, False),
        (StepKind.SLOWED, {"status": "REGRESSION"}, True),
        (StepKind.SLOWED, {"status": "PASS"}, False),
        (StepKind.SLOWED, {"status": "INCONCLUSIVE"}, False),
        (StepKind.MEASURE, {"status": "NO_BASELINE", "samples_per_s": 9.0}, True),
        (StepKind.MEASURE, {"status": "NO_BASELINE"}, False),
        (StepKind.MEASURE, {"status": "INVALID", "samples_per_s": 9.0}, False),
        (StepKind.MEASURE, {"status": "INFRA_ERROR", "samples_per_s": 9.0}, False),
        (StepKind.TRAINS, {"status": "INFRA_ERROR", "run_folders": ("r0",)}, False),
        (StepKind.TRAINS, {"status": "PASS", "samples_per_s": 9.0}, False),
        (StepKind.NEIGHBOUR, {"status": "INVALID", "reason": "contended: 30% by others"}, True),
        (StepKind.NEIGHBOUR, {"status": "INVALID", "reason": "throttled"}, False),
        (StepKind.NEIGHBOUR, {"status": "PASS", "samples_per_s": 9.0}, False),
    ],
)
def test_a_step_is_right_by_what_its_kind_is_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: StepKind, values: dict[str, Any], right: bool
) -> None:
    @contextmanager
    def beside(*_: object) -> Iterator[int]:
        yield 1

    monkeypatch.setattr(proof_steps, "neighbour", beside)
    found = run_step(Bench(tmp_path, **values), step_of(kind))  # type: ignore[arg-type]
    assert (found.right, found.status) == (right, values["status"])


def test_a_case_that_cannot_run_here_is_not_run_neither_right_nor_wrong(tmp_path: Path) -> None:
    for kind in StepKind:
        bench = Bench(tmp_path, samples_per_s=1.0)
        bench.why = "no DALI"
        found = run_step(bench, step_of(kind))  # type: ignore[arg-type]
        assert (found.status, found.right, found.wrong, found.message) == ("not run", False, False, "no DALI")


@pytest.mark.parametrize(
    ("answer", "status", "right"),
    [
        (([], "computed", ""), "MEASURED", True),
        ((["cuDNN is 9, the build is for 8"], "computed", ""), "MEASURED", False),
        (([], "", "this build has no such pass"), "not run", False),
        ((["wrong"], "", "and not run"), "MEASURED", False),
    ],
)
def test_a_probe_with_a_fault_is_wrong_and_one_with_nothing_to_probe_not_run(
    tmp_path: Path, answer: tuple[list[str], str, str], status: str, right: bool
) -> None:
    bench = Bench(tmp_path)
    bench.answer = answer
    found = run_step(bench, STEPS[0])  # type: ignore[arg-type]
    assert (found.status, found.right) == (status, right)


@pytest.mark.slow
def test_paddles_probe_is_asked_in_a_process_of_its_own(tmp_path: Path) -> None:
    def asked(does: str, most_seconds: float = 60.0) -> tuple[list[str], str, str]:
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\n{does}\n")
        python.chmod(0o755)
        spec = JobSpec("proof-job", STEPS[0].case, 0, str(tmp_path), "cpu", 1, 2)
        return ask_probe("libraries", spec, str(python), most_seconds)

    answer = '{"faults": ["bad"], "facts": {"cudnn": "8.9.7"}, "not_run": null}'
    assert asked(f"echo noise; echo '{answer}'") == (["bad"], "cudnn 8.9.7", "")
    for does, expected in (
        ("echo 'no module named paddle' >&2; exit 1", "exit status 1: no module named paddle"),
        ("echo '[]'", r"exit status 0: \[\]"),
        ("exec sleep 60", "no end within 1 s"),
    ):
        with pytest.raises(LaunchError, match=expected):
            asked(does, 1.0 if "sleep" in does else 60.0)


# ---- the logs of a few steps

FALLING = (7.0, 6.5, 6.0, 5.5)


def looked_at(
    folder: Path,
    losses: Sequence[float] = FALLING,
    *,
    host_seconds: float = 1.0,
    sums: Sequence[float] = (5.0,),
    facts: dict[str, str] | None = None,
) -> tuple[list[str], str]:
    """Look at a run of one warm-up step and three more, of as many ranks as ``sums``."""
    case = Case.parse(f"paddle-resnet50v1.5-fp32-bs2-1x{len(sums)}-synthetic-dynamic")
    spec = JobSpec("j", case, 0, str(folder), "cpu", 1, len(losses) - 1)
    spec.spec_path.write_text(spec.to_json())
    for rank, total in enumerate(sums):
        header = Header("j", case.id, 0, rank, len(sums), "h", 1, "paddle", "3.3.1", "", "cpu", facts or {})
        log = StepLogWriter(spec.step_log_path(rank), header)
        beats = Heartbeat(spec.heartbeat_path(rank))
        for number, loss in enumerate(losses):
            phase = WINDOW if number else WARMUP
            log.step(Step(0, number + 1, phase, number, number + 1.0, 2, 0.0, loss))
            beats.beat(phase, number + 1, number * host_seconds)
        log.footer(Footer(COMPLETE))
        spec.weights_path(rank).write_text(json.dumps({"absolute_sum": total}))
    return look_at(folder)


@pytest.mark.parametrize(
    ("run", "faults"),
    [
        ({}, []),
        ({"losses": (7.0, 6.0, 7.0, 7.5)}, ["the loss did not fall: 7 at the first step, 7.5 at the last"]),
        ({"host_seconds": 1.05}, []),
        ({"host_seconds": 0.95}, []),
        ({"host_seconds": 1.2}, ["the steps' clock gives 0.833 of the host's time, expected 1 within 0.1"]),
        ({"host_seconds": 0.8}, ["the steps' clock gives 1.250 of the host's time, expected 1 within 0.1"]),
        ({"sums": (5.0, 5.0)}, []),
        ({"sums": (5.0, 5.0000001)}, ["the ranks' weights differ: their sums are 5.0, 5.0000001"]),
        ({"sums": (math.nan, math.nan)}, ["the ranks' weights differ: their sums are nan, nan"]),
    ],
)
def test_losses_clocks_and_weights_are_looked_at(tmp_path: Path, run: dict[str, Any], faults: list[str]) -> None:
    found, message = looked_at(tmp_path, **run)
    assert found == faults
    assert message.startswith("loss 7 to ")


@pytest.mark.parametrize(("joined", "faults"), [(21, 0), (0, 1)])
def test_a_program_of_several_cards_without_an_all_reduce_is_a_fault(tmp_path: Path, joined: int, faults: int) -> None:
    counts = counts_text({**dict.fromkeys(COUNTED, 0), "all_reduce": joined})
    found, message = looked_at(tmp_path, sums=(5.0, 5.0), facts={PROGRAM_COUNTS_FACT: counts})
    assert len(found) == faults
    assert f"{joined} all-reduces in the program" in message


def test_a_rank_that_wrote_no_weights_or_no_life_signs_is_an_error(tmp_path: Path) -> None:
    looked_at(tmp_path, sums=(5.0, 5.0))
    weights = tmp_path / "rank1.weights.json"
    weights.write_text("")
    assert "weights differ" in look_at(tmp_path)[0][0]
    weights.unlink()
    with pytest.raises(ResultError, match=r"rank1\.weights\.json"):
        look_at(tmp_path)
    (tmp_path / "rank0.heartbeat").write_text("")
    with pytest.raises(ResultError, match="life signs"):
        look_at(tmp_path)


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


def test_what_the_runs_say_of_the_card_is_told_and_what_they_do_not_say_too() -> None:
    found = seen(ON_H100, [measured()])
    assert found["runs"] == "1, with 2 steps timed by the card's events"
    assert found["leased cards"] == "GPU-aa"
    assert found["peak of device memory"] == "20.0 GiB"
    assert found["sm_clock_mhz"] == "1980"
    assert found["not_measured"] == "NOT SEEN"
    assert "GPU-other" in seen(ON_H100, [measured("GPU-other")])["leased cards"].partition("NO CARD")[2]


def test_the_summary_has_figures_wrong_steps_and_what_was_not_reached() -> None:
    slowed = record("slowed", "PASS", right=False, message="no drop | at all")
    unable = record("two-cards", "not run", right=False, message="no DALI")
    done = record(FIRST.key, "NO_BASELINE", figure="2800 images/s (n=2)")
    steps = steps_here((A100, A100), 1)
    records = {each.key: each for each in (done, slowed, unable)}
    text = summary(ON_H100, GPU, steps, records, [measured()], "today")
    assert f"2 of {len(steps)} steps done on NVIDIA H100 80GB HBM3, until today. **Wrong: slowed.**" in text
    assert f"| {FIRST.key} | 2800 images/s (n=2) | NO_BASELINE | as it must be: no drop |" in text
    assert "| slowed | - | PASS | WRONG: no drop \\| at all |" in text
    assert {"two-cards: no DALI", "neighbour: not reached"} <= set(not_reached(steps, records))
