"""The Paddle trainer as the suite starts it: real, short training on this machine's CPU."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from helpers.launch.launchers import launch_command
from helpers.launch.launchers.launcher import job_environment
from helpers.launch.outcome import OutcomeKind
from helpers.launch.step_profile_reader import read_step_profiles
from helpers.launch.steplog_reader import read_step_log
from helpers.plan.grown_dataset import GrownDataset
from helpers.trainers.contract.case import Case, Execution
from helpers.trainers.contract.job import WEIGHTS_VARIABLE
from helpers.trainers.contract.step_profile import Phase, StepProfile
from helpers.trainers.contract.steplog import steadiness
from tests.helpers.trainers.colours import LEARNING_RATES, check_learnt
from tests.helpers.trainers.cores import lacks_bfloat16
from tests.helpers.trainers.jobs import ADAPTIVE, CORES, TWO_CORES, job, run

pytestmark = [pytest.mark.training, pytest.mark.untimed, pytest.mark.usefixtures("small_images")]

RESNET50 = "paddle-resnet50v1.5"
WEIGHTS = {WEIGHTS_VARIABLE: "1"}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return GrownDataset(tmp_path_factory.mktemp("data") / "small").first(32).root


def test_one_card_trains_with_dali_on_the_cpu_and_tells_its_operators(tmp_path: Path, images: Path) -> None:
    case_id = f"{RESNET50}-fp32-bs1-1x1-dali_cpu-static"
    spec = job(tmp_path, case_id, images, explained_steps=2, environment=WEIGHTS)
    outcome = run(spec, sys.executable)
    assert outcome.kind is OutcomeKind.COMPLETE, outcome.log_tail
    (log,) = outcome.logs
    assert (log.header.device, log.header.framework_version != "unknown", len(log.header.framework_commit)) == (
        "cpu", True, 40,
    )  # fmt: skip
    assert {"program": "PIR", "data": "dali_cpu", "cores": str(CORES[0])}.items() <= log.header.facts.items()
    assert _weights(tmp_path / "run", 0) > 10**5
    (profile,) = read_step_profiles(tmp_path / "run")
    assert isinstance(profile, StepProfile), profile
    calls: Counter[tuple[Phase, str]] = Counter()
    seconds: Counter[Phase] = Counter()
    for row in profile.operators:
        calls[row.phase, row.operator] += row.calls_per_step
        seconds[row.phase] += row.seconds_per_step
    for operator in ("conv2d", "batch_norm"):
        assert (calls[Phase.FORWARD, operator], calls[Phase.BACKWARD, f"{operator}_grad"]) == (53, 53)
    assert calls[Phase.OPTIMIZER, "momentum"] == 161
    # Rows of several threads may be computed at the same time.
    for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER):
        assert 0 < profile.phases[phase] < 1.001 * seconds[phase]


@TWO_CORES
@pytest.mark.parametrize(
    "case_id", [f"{RESNET50}-fp32-bs2-1x2-dali-dynamic", f"{RESNET50}-amp_o2-bs2-1x2-native-to_static"]
)
def test_all_ranks_learn_and_warm_up_until_all_are_steady_or_the_budget_is_used(
    tmp_path: Path, colours: Path, case_id: str
) -> None:
    if lacks_bfloat16(case_id):
        pytest.skip("this CPU has no AVX-512: Paddle refuses bfloat16, as the cases of one card show")
    case = Case.parse(case_id)
    settings = {"learning_rate": LEARNING_RATES[case.model.value]}
    spec = job(tmp_path, case_id, colours, 3, settings, explained_steps=1, environment=WEIGHTS, **ADAPTIVE)
    outcome = run(spec, sys.executable)
    assert outcome.kind is OutcomeKind.COMPLETE, outcome.log_tail
    first, second = outcome.logs
    (made,) = {len(log.warmup) for log in outcome.logs}
    for log in outcome.logs:
        check_learnt(log)
        assert all(step.reader_seconds < step.step_seconds for step in log.window)
        if case.precision.is_amp:
            assert {"bfloat16_convolutions": "53", "NHWC_convolutions": "53"}.items() <= log.header.facts.items()
    seconds = [[step.step_seconds for step in log.warmup] for log in outcome.logs]
    # The trainer's answer at each of its looks, from what it recorded.
    looks = [all(steadiness(each[:steps], 2).steady for each in seconds) for steps in range(6, made + 1, 2)]
    assert not any(looks[:-1])
    assert looks[-1] or made == ADAPTIVE["most_warmup_steps"]
    # Each trained its own images on its own core, and both began the window together with the same weights.
    assert [log.header.facts["cores"] for log in outcome.logs] == [str(core) for core in CORES[:2]]
    assert [step.loss for step in first.steps] != [step.loss for step in second.steps]
    longest = max(step.step_seconds for log in outcome.logs for step in log.window)
    assert abs(first.window[0].start - second.window[0].start) < longest
    assert _weights(tmp_path / "run", 0) == _weights(tmp_path / "run", 1) > 10**5
    _check_profiles(tmp_path / "run", tells_layers=case.execution is Execution.DYNAMIC)
    _check_phases(tmp_path / "run", made)


def _weights(folder: Path, rank: int) -> float:
    return float(json.loads((folder / f"rank{rank}.weights.json").read_text())["absolute_sum"])


def _check_phases(folder: Path, warmup_steps: int) -> None:
    """The heartbeat names what the rank did, in order, and the number of each step that it begins."""
    beats = [json.loads(line) for line in (folder / "rank0.heartbeat").read_text().splitlines()]
    steps = [*["warm-up"] * warmup_steps, *["window"] * 3]
    before = ["import paddle", "connect ranks", "data", "build model", "first step"]
    assert [beat["phase"] for beat in beats if "phase" in beat] == [*before, *steps, "profile", "profile"]
    assert [beat["begun"] for beat in beats if "phase" not in beat] == [*range(1, len(steps) + 1)]


def _check_profiles(folder: Path, *, tells_layers: bool) -> None:
    """Both ranks name the gradient of each convolution, by its layer unless the step is a compiled program, and reduce
    their gradients."""
    profiles = read_step_profiles(folder)
    assert len(profiles) == 2
    for profile in profiles:
        assert isinstance(profile, StepProfile), profile
        gradients = [row for row in profile.operators if row.operator in ("conv2d_grad", "onednn_op.conv2d_grad")]
        assert sum(row.calls_per_step for row in gradients) == 53
        layers = {row.layer for row in gradients}
        assert (len(layers) == 53 and "" not in layers) if tells_layers else layers == {""}
        assert profile.phases[Phase.ALL_REDUCE] > 0


@pytest.mark.parametrize("execution", ["dynamic", "static"])
def test_the_learning_rate_changes_at_its_epoch_and_a_training_that_diverges_fails(
    tmp_path: Path, images: Path, execution: str
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "train").symlink_to(images / "train")
    first = (images / "train_list.txt").read_text(encoding="utf-8").splitlines(keepends=True)[0]
    (data / "train_list.txt").write_text(first, encoding="utf-8")
    # One step an epoch; the update of the third, at a rate of 1e38, is the first one that destroys the weights.
    # Paddle's own loss looks finite after it.
    settings = {"learning_rate": 1e-22, "learning_rate_boundaries": [2], "learning_rate_decay": 1e60}
    spec = job(tmp_path, f"{RESNET50}-fp32-bs1-1x1-dali-{execution}", data, 6, settings, warmup_steps=0)
    assert run(spec, sys.executable).what == "training diverged"
    log = read_step_log(spec.step_log_path(0))
    assert log.footer.reason.startswith("LossError: step 4 (window)")
    assert [step.epoch for step in log.steps] == [0, 1, 2]


def test_what_cannot_run_here_is_refused_with_its_reason(tmp_path: Path, images: Path) -> None:
    outcome = run(job(tmp_path, f"{RESNET50}-amp_o1-bs1-1x1-dali-dynamic", images), sys.executable)
    assert outcome.kind is OutcomeKind.REFUSED
    assert "auto_cast has no effect on a CPU" in outcome.reason


def test_a_trainer_asked_to_stop_ends_at_once_and_its_log_has_no_footer(tmp_path: Path, images: Path) -> None:
    spec = job(tmp_path, f"{RESNET50}-fp32-bs8-1x1-native-dynamic", images, 50)
    spec.spec_path.parent.mkdir()
    spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
    command = launch_command(spec, sys.executable)
    environment = job_environment(os.environ, spec, command, {})
    # In a session of its own: here is no supervisor, which ends a loader's workers too.
    with subprocess.Popen(command.argv, env=environment, stderr=subprocess.DEVNULL, start_new_session=True) as trainer:
        try:
            beats = spec.heartbeat_path(0)
            while trainer.poll() is None and not (beats.exists() and "first step" in beats.read_text()):
                time.sleep(0.1)
            trainer.terminate()
            # At once, beside its steps, however slow the machine is.
            assert trainer.wait(timeout=30) == -signal.SIGTERM
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(trainer.pid, signal.SIGKILL)
    assert not spec.step_log_path(0).exists() or "footer" not in spec.step_log_path(0).read_text()
