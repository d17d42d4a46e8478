"""Training that learns, in every mode that runs on a CPU: real processes, on two colours that are easily told apart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from helpers.case import Case
from helpers.job import JobSpec
from helpers.launch.launcher import job_environment, launcher_for
from helpers.recipe import settings_for

pytestmark = pytest.mark.training

CORES = sorted(os.sched_getaffinity(0))
RESNET50, VGG16 = "paddle-resnet50v1.5", "paddle-vgg16"
# The mean of two steps' losses, as a share of the first one: a guess among 1000 classes has ln 1000 = 6.9, so
# what is asked for is near ln 2, the loss of one who knows the two classes and cannot tell them apart.
FALLEN = 0.25
# Steps after which a mode that has not learnt does not learn. It takes 4 to 9.
MOST_STEPS = 16
# ResNet50 learns at most rates; without batch norm VGG16's loss explodes at ten times this one.
LEARNING_RATES = {RESNET50: 0.002, VGG16: 0.0003}
PATIENCE_SECONDS = 600
BFLOAT16 = "AMP {} in bfloat16: convolution and matmul, on oneDNN"


@dataclass(frozen=True)
class Learnt:
    """``losses`` step by step of rank 0, until they had fallen, or of all steps."""

    losses: list[float]
    facts: dict[str, str]
    errors: str

    @property
    def fallen(self) -> bool:
        return has_fallen(self.losses)


def has_fallen(losses: list[float]) -> bool:
    return len(losses) > 2 and sum(losses[-2:]) / 2 < FALLEN * losses[0]


@pytest.fixture(scope="module")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ImageNet-layout folder of two classes, a red one and a blue one, 8 images each."""
    root = tmp_path_factory.mktemp("colours")
    lines = []
    for label, (red, blue) in {3: (200, 40), 700: (40, 200)}.items():
        (root / f"train/{label}").mkdir(parents=True)
        for number in range(8):
            name = f"train/{label}/{number}.jpeg"
            Image.new("RGB", (64, 64), (red + 4 * number, 40, blue + 4 * number)).save(root / name)
            lines.append(f"{name} {label}\n")
    (root / "train_list.txt").write_text("".join(lines), encoding="utf-8")
    return root


def learn(folder: Path, case_id: str, data: Path, **overrides: Any) -> Learnt:
    """Train until the loss has fallen, at most MOST_STEPS steps; then end what still runs."""
    case = Case.parse(case_id)
    overrides = {"learning_rate": LEARNING_RATES[f"paddle-{case.model.value}"], **overrides}
    spec = JobSpec(
        job_id=uuid.uuid4().hex,
        case=case,
        replicate=0,
        run_folder=str(folder),
        device="cpu",
        warmup_steps=0,
        window_steps=MOST_STEPS,
        data_root=str(data),
        settings={**settings_for(case, "cpu"), **overrides},
        overrides=overrides,
        cores=tuple((CORES[card % len(CORES)],) for card in range(case.cards)),
    )
    spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
    command = launcher_for(case).command(spec, sys.executable)
    environment = job_environment(os.environ, spec, command, {})
    started = time.monotonic()
    with (folder / "errors").open("w+") as errors:
        # A session of its own, so that all ranks can be ended together.
        with subprocess.Popen(
            command.argv, env=environment, stdout=errors, stderr=errors, start_new_session=True
        ) as process:
            try:
                while process.poll() is None and not has_fallen(_read(spec)[0]):
                    if time.monotonic() > started + PATIENCE_SECONDS:
                        break
                    time.sleep(0.1)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        errors.seek(0)
        return Learnt(*_read(spec), errors.read()[-3000:])


def _read(spec: JobSpec) -> tuple[list[float], dict[str, str]]:
    """Losses and header facts of rank 0's log as far as it is written."""
    path = spec.step_log_path(0)
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    records = [json.loads(line) for line in lines]
    losses = [record["loss"] for record in records if "loss" in record]
    return losses, records[0]["facts"] if records else {}


@pytest.mark.parametrize(
    ("case", "facts"),
    [
        (f"{RESNET50}-fp32-bs2-1x1-dali-dynamic", {"precision": "float32", "layout": "NCHW"}),
        (f"{RESNET50}-fp32-bs2-1x1-native-to_static", {"precision": "float32"}),
        (f"{RESNET50}-fp32-bs2-1x1-dali-static", {"program": "PIR", "NCHW_convolutions": "53"}),
        (f"{RESNET50}-amp_o1-bs2-1x1-native-to_static", {"precision": BFLOAT16.format("O1")}),
        (f"{RESNET50}-amp_o1-bs2-1x1-dali-static", {"bfloat16_convolutions": "53", "layout": "NCHW"}),
        (f"{RESNET50}-amp_o2-bs2-1x1-dali-to_static", {"precision": BFLOAT16.format("O2"), "NHWC_convolutions": "53"}),
        (
            f"{RESNET50}-amp_o2-bs2-1x1-dali-static",
            {"bfloat16_convolutions": "53", "NHWC_convolutions": "53", "feed": "NCHW, 4 channels, float32"},
        ),
        (f"{RESNET50}-bf16-bs2-1x1-dali-to_static", {"bfloat16_convolutions": "53"}),
        (f"{RESNET50}-bf16-bs2-1x1-dali-static", {"bfloat16_convolutions": "53"}),
        (f"{RESNET50}-fp32-bs2-1x2-dali-dynamic", {"precision": "float32"}),
        (f"{RESNET50}-fp32-bs2-1x2-native-to_static", {"execution": "to_static"}),
        (f"{RESNET50}-amp_o1-bs2-1x2-dali-to_static", {"bfloat16_convolutions": "53"}),
        (f"{RESNET50}-amp_o2-bs2-1x2-dali-to_static", {"NHWC_convolutions": "53"}),
        (f"{VGG16}-fp32-bs2-1x1-dali-dynamic", {"precision": "float32"}),
        (f"{VGG16}-fp32-bs1-1x1-synthetic-to_static", {"execution": "to_static"}),
        (f"{VGG16}-fp32-bs1-1x1-synthetic-static", {"program": "PIR", "NCHW_convolutions": "13"}),
        (f"{VGG16}-amp_o1-bs2-1x1-dali-to_static", {"bfloat16_convolutions": "13"}),
        (f"{VGG16}-amp_o1-bs2-1x1-dali-static", {"bfloat16_convolutions": "13"}),
        (f"{VGG16}-amp_o2-bs2-1x1-dali-to_static", {"bfloat16_convolutions": "13", "layout": "NCHW"}),
        (f"{VGG16}-amp_o2-bs2-1x1-dali-static", {"bfloat16_convolutions": "13"}),
        (f"{VGG16}-bf16-bs2-1x1-dali-to_static", {"bfloat16_convolutions": "13"}),
        (f"{VGG16}-amp_o1-bs1-1x2-dali-to_static", {"bfloat16_convolutions": "13"}),
        (f"{VGG16}-amp_o2-bs1-1x2-dali-to_static", {"bfloat16_convolutions": "13"}),
        (f"{VGG16}-fp32-bs1-1x2-dali-dynamic", {"precision": "float32"}),
        (f"{VGG16}-fp32-bs1-1x2-dali-dynamic-auto", {"precision": "float32"}),
    ],
)  # fmt: skip
def test_the_loss_falls(tmp_path: Path, colours: Path, case: str, facts: dict[str, str]) -> None:
    if Case.parse(case).cards > len(CORES):
        pytest.skip("two cards need two cores")
    learnt = learn(tmp_path, case, colours)
    assert learnt.fallen, f"{learnt.losses}\n{learnt.errors}"
    assert facts.items() <= learnt.facts.items()


def test_nothing_is_learnt_where_nothing_is_updated(tmp_path: Path, colours: Path) -> None:
    # So that the tests above can fail: dropout and drawn crops alone do not let a loss fall.
    learnt = learn(tmp_path, f"{RESNET50}-amp_o1-bs2-1x1-dali-to_static", colours, learning_rate=0.0)
    assert len(learnt.losses) == MOST_STEPS
    assert not learnt.fallen
