"""Real, short training on this machine's CPU, in processes of its own as the suite starts them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from helpers.launch.launchers import launcher_for
from helpers.launch.launchers.launcher import job_environment
from helpers.launch.step_profiles import step_profiles
from helpers.launch.steplog_reader import read_step_log
from helpers.plan.grown_dataset import GrownDataset
from helpers.plan.image_folder import check_dataset
from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.common.process import EXIT_COMPLETE, EXIT_FAILED, EXIT_REFUSED
from helpers.trainers.contract.case import Case, Execution
from helpers.trainers.contract.job import WEIGHTS_VARIABLE, JobSpec
from helpers.trainers.contract.step_profile import Phase, StepProfile
from helpers.trainers.contract.steplog import COMPLETE, FAILED, REFUSED, StepLog, steadiness
from tests.helpers.trainers.colours import LEARNING_RATES, has_fallen, two_colours
from tests.helpers.trainers.cores import NO_BFLOAT16, lacks_bfloat16, own_cores

pytestmark = [pytest.mark.training, pytest.mark.untimed, pytest.mark.usefixtures("small_images")]

RESNET50 = "paddle-resnet50v1.5"
CORES = own_cores()


@dataclass(frozen=True)
class Ran:
    exit_status: int
    logs: tuple[StepLog, ...]
    errors: str


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return GrownDataset(tmp_path_factory.mktemp("data") / "small").first(32).root


# Least and most warm-up in windows of two steps.
ADAPTIVE = {"warmup_steps": 6, "steady_window_steps": 2, "most_warmup_steps": 8}


def _job(
    folder: Path,
    case_id: str,
    data: Path | None,
    steps: tuple[int, int],
    overrides: dict[str, Any],
    adaptive: bool = False,
    explained_steps: int = 0,
) -> JobSpec:
    case = Case.parse(case_id)
    spec = JobSpec(
        job_id=uuid.uuid4().hex,
        case=case,
        replicate=0,
        run_folder=str(folder),
        device="cpu",
        warmup_steps=steps[0],
        window_steps=steps[1],
        data_root=str(data) if data else None,
        settings={**settings_for(case, "cpu"), **overrides},
        overrides=overrides,
        cores=tuple((CORES[card % len(CORES)],) for card in range(case.cards)),
        explained_steps=explained_steps,
    )
    if adaptive:
        spec = replace(spec, **ADAPTIVE)
    spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
    return spec


def _run(
    folder: Path,
    case_id: str,
    data: Path | None,
    *,
    steps: tuple[int, int] = (1, 2),
    adaptive: bool = False,
    explained_steps: int = 0,
    **overrides: Any,
) -> Ran:
    spec = _job(folder, case_id, data, steps, overrides, adaptive, explained_steps)
    command = launcher_for(spec).command(spec, sys.executable)
    environment = job_environment(os.environ, spec, command, {})
    done = subprocess.run(command.argv, env=environment, capture_output=True, text=True, timeout=600, check=False)
    logs = tuple(read_step_log(spec.step_log_path(rank), spec.job_id, rank) for rank in range(spec.case.cards))
    return Ran(done.returncode, logs, done.stderr)


def _complete(ran: Ran, ranks: int = 1, steps: tuple[int, int] = (1, 2)) -> None:
    assert ran.exit_status == EXIT_COMPLETE, ran.errors[-2000:]
    assert [log.footer.status for log in ran.logs] == [COMPLETE] * ranks
    assert all((len(log.warmup), len(log.window)) == steps for log in ran.logs)
    assert all(step.loss is not None and 0 < step.loss < 20 for log in ran.logs for step in log.steps)


# What learns, by every way of execution and every precision, is test_learning.py's.
def test_one_card_trains_with_dali_on_the_cpu(tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WEIGHTS_VARIABLE, "1")
    ran = _run(tmp_path, f"{RESNET50}-fp32-bs1-1x1-dali_cpu-static", images, explained_steps=2)
    _complete(ran)
    assert _weights(tmp_path, 0) > 10**5
    (profile,) = step_profiles(tmp_path)
    assert isinstance(profile, StepProfile), profile
    calls: Counter[tuple[Phase, str]] = Counter()
    seconds: Counter[Phase] = Counter()
    for row in profile.operators:
        calls[row.phase, row.operator] += row.calls_per_step
        seconds[row.phase] += row.seconds_per_step
    for operator in ("conv2d", "batch_norm"):
        assert (calls[Phase.FORWARD, operator], calls[Phase.BACKWARD, f"{operator}_grad"]) == (53, 53)
    assert calls[Phase.OPTIMIZER, "momentum"] == 161
    assert {phase for phase, operator in calls if operator.endswith(("_grad", "add_n"))} == {Phase.BACKWARD}
    # Rows of several threads may be computed at the same time.
    for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER):
        assert 0 < profile.phases[phase] < 1.001 * seconds[phase]
    header = ran.logs[0].header
    assert (header.device, header.framework_version != "unknown", len(header.framework_commit)) == ("cpu", True, 40)
    assert {"program": "PIR", "data": "dali_cpu", "cores": str(CORES[0])}.items() <= header.facts.items()


@pytest.mark.skipif(len(CORES) < 2, reason="two cards need two cores")
@pytest.mark.parametrize(
    ("case_id", "facts"),
    [
        (f"{RESNET50}-fp32-bs2-1x2-dali-dynamic", {"precision": "float32", "layout": "NCHW"}),
        (
            f"{RESNET50}-amp_o2-bs2-1x2-native-to_static",
            {"execution": "to_static", "bfloat16_convolutions": "53", "NHWC_convolutions": "53"},
        ),
    ],
)  # fmt: skip
def test_all_ranks_learn_and_warm_up_until_all_are_steady_or_the_budget_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case_id: str, facts: dict[str, str]
) -> None:
    if lacks_bfloat16(case_id):
        pytest.skip("this CPU has no AVX-512: Paddle refuses bfloat16, as the cases of one card show")
    monkeypatch.setenv(WEIGHTS_VARIABLE, "1")
    case = Case.parse(case_id)
    rate, colours = LEARNING_RATES[case.model.value], two_colours(tmp_path / "colours")
    ran = _run(tmp_path, case_id, colours, steps=(6, 3), adaptive=True, explained_steps=1, learning_rate=rate)
    assert ran.exit_status == EXIT_COMPLETE, ran.errors[-2000:]
    (made,) = {len(log.warmup) for log in ran.logs}
    assert made in (6, 8)
    assert all(len(log.window) == 3 for log in ran.logs)
    for log in ran.logs:
        assert facts.items() <= log.header.facts.items()
        assert all(step.reader_seconds < step.step_seconds for step in log.window)
        losses = [step.loss for step in log.steps if step.loss is not None]
        assert any(has_fallen(losses[:steps]) for steps in range(len(losses) + 1)), losses
    seconds = [[step.step_seconds for step in log.warmup] for log in ran.logs]
    # The trainer's answer at each of its looks, from what it recorded.
    looks = [all(steadiness(each[:steps], 2).steady for each in seconds) for steps in range(6, made + 1, 2)]
    assert not any(looks[:-1])
    assert looks[-1] or made == ADAPTIVE["most_warmup_steps"]
    assert _weights(tmp_path, 0) == _weights(tmp_path, 1) > 10**5
    _check_two_ranks(*ran.logs)
    _check_profiles(tmp_path, tells_layers=case.execution is Execution.DYNAMIC)
    _check_phases(tmp_path, made)


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
    profiles = step_profiles(folder)
    assert len(profiles) == 2
    for profile in profiles:
        assert isinstance(profile, StepProfile), profile
        gradients = [row for row in profile.operators if row.operator in ("conv2d_grad", "onednn_op.conv2d_grad")]
        assert sum(row.calls_per_step for row in gradients) == 53
        layers = {row.layer for row in gradients}
        assert (len(layers) == 53 and "" not in layers) if tells_layers else layers == {""}
        assert profile.phases[Phase.ALL_REDUCE] > 0


def _check_two_ranks(first: StepLog, second: StepLog) -> None:
    """Each trained its own images on its own core, and both began the window together."""
    assert [log.header.facts["cores"] for log in (first, second)] == [str(core) for core in CORES[:2]]
    assert (first.header.world_size, second.header.world_size) == (2, 2)
    assert [step.loss for step in first.steps] != [step.loss for step in second.steps]
    longest = max(step.step_seconds for log in (first, second) for step in log.window)
    assert abs(first.window[0].start - second.window[0].start) < longest


@pytest.mark.parametrize("loader", ["dali", "native"])
def test_a_broken_jpeg_fails_the_run_and_is_named(tmp_path: Path, images: Path, loader: str) -> None:
    data = tmp_path / "data"
    shutil.copytree(images, data)
    broken = data / "train/coffee/coffee_0001.jpeg"
    broken.write_bytes(broken.read_bytes()[:3000])
    lines = (data / "train_list.txt").read_text().splitlines()
    (data / "train_list.txt").write_text("".join(f"{line}\n" for line in lines if "coffee" in line))
    ran = _run(tmp_path, f"{RESNET50}-fp32-bs4-1x1-{loader}-dynamic", data, steps=(0, 1))
    assert ran.exit_status == EXIT_FAILED
    footer = ran.logs[0].footer
    assert footer.status == FAILED
    assert "coffee_0001.jpeg" in footer.reason


@pytest.mark.parametrize("loader", ["dali", "native"])
def test_what_imagenet_holds_beside_plain_jpegs_is_trained(tmp_path: Path, loader: str) -> None:
    data = tmp_path / "图 像 data"
    (data / "train" / "n 01").mkdir(parents=True)
    grey = Image.radial_gradient("L")
    images = {"PNG": grey.convert("RGB"), "CMYK": grey.convert("CMYK"), "grey": grey, "1x1": grey.resize((1, 1))}
    for name, image in images.items():
        image.save(data / "train" / "n 01" / f"猫 {name}.JPEG", "PNG" if name == "PNG" else "JPEG")
    lines = "".join(f"train/n 01/猫 {name}.JPEG {label}\r\n" for label, name in enumerate(images))
    (data / "train_list.txt").write_bytes(b"\xef\xbb\xbf" + lines.encode())
    assert check_dataset(data).images == 4
    _complete(_run(tmp_path, f"{RESNET50}-fp32-bs4-1x1-{loader}-dynamic", data, steps=(0, 1)), steps=(0, 1))


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
    ran = _run(
        tmp_path, f"{RESNET50}-fp32-bs1-1x1-dali-{execution}", data, steps=(0, 6),
        learning_rate=1e-22, learning_rate_boundaries=[2], learning_rate_decay=1e60,
    )  # fmt: skip
    assert ran.exit_status == EXIT_FAILED
    assert ran.logs[0].footer.reason.startswith("LossError: step 4 (window)")
    assert "field 'loss'" in ran.logs[0].footer.reason
    assert [step.epoch for step in ran.logs[0].steps] == [0, 1, 2]


def test_what_cannot_run_here_is_refused_with_its_reason(tmp_path: Path, images: Path) -> None:
    ran = _run(tmp_path, f"{RESNET50}-amp_o1-bs1-1x1-dali-dynamic", images)
    (log,) = ran.logs
    assert (ran.exit_status, log.footer.status, log.steps) == (EXIT_REFUSED, REFUSED, ())
    assert "auto_cast has no effect on a CPU" in log.footer.reason


def test_mixed_precision_on_a_cpu_is_refused_where_static_programs_are_not_pir(tmp_path: Path) -> None:
    # As in Paddle 2.6.
    old = {"FLAGS_enable_pir_api": "0", "FLAGS_enable_pir_in_executor": "0"}
    ran = _run(tmp_path, f"{RESNET50}-amp_o1-bs1-1x1-synthetic-static", None, environment=old)
    assert ran.exit_status == EXIT_REFUSED
    why = NO_BFLOAT16 if lacks_bfloat16(f"{RESNET50}-amp_o1-bs1-1x1-synthetic-static") else "PIR programs alone"
    assert why in ran.logs[0].footer.reason


@pytest.mark.parametrize("loader", ["dali", "native"])
def test_a_trainer_asked_to_stop_ends_at_once_and_its_log_has_no_footer(
    tmp_path: Path, images: Path, loader: str
) -> None:
    spec = _job(tmp_path, f"{RESNET50}-fp32-bs8-1x1-{loader}-dynamic", images, (50, 50), {})
    command = launcher_for(spec).command(spec, sys.executable)
    environment = job_environment(os.environ, spec, command, {})
    # In a session of its own: here is no supervisor, which ends a loader's workers too.
    with subprocess.Popen(command.argv, env=environment, stderr=subprocess.DEVNULL, start_new_session=True) as trainer:
        try:
            while trainer.poll() is None and "first step" not in _heartbeat(spec):
                time.sleep(0.1)
            trainer.terminate()
            # At once, beside its hundred steps, however slow the machine is.
            assert trainer.wait(timeout=30) == -signal.SIGTERM
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(trainer.pid, signal.SIGKILL)
    assert not spec.step_log_path(0).exists() or "footer" not in spec.step_log_path(0).read_text()


def _heartbeat(spec: JobSpec) -> str:
    path = spec.heartbeat_path(0)
    return path.read_text() if path.exists() else ""
