"""Training that learns to tell two colours apart, in a real process of a framework's trainer."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.steplog import StepLog
from tests.helpers.trainers.jobs import job, kill, run

# The mean of two steps' losses, as a share of the first one: a guess among 1000 classes has ln 1000 = 6.9, so
# what is asked for is near ln 2, the loss of one who knows the two classes and cannot tell them apart.
FALLEN = 0.25
# Steps after which a mode that has not learnt does not learn. It takes 4 to 9.
MOST_STEPS = 16
# ResNet50 learns at most rates; without batch norm VGG16's loss explodes at ten times this one.
LEARNING_RATES = {"resnet50v1.5": 0.002, "vgg16": 0.0003}


@dataclass(frozen=True)
class Learnt:
    """``losses`` step by step of rank 0, until they had fallen, or of all steps."""

    losses: list[float]
    facts: dict[str, str]
    # Why the job ended: it was killed if it had learnt.
    errors: str

    @property
    def fallen(self) -> bool:
        return has_fallen(self.losses)


def has_fallen(losses: list[float]) -> bool:
    return len(losses) > 2 and sum(losses[-2:]) / 2 < FALLEN * losses[0]


def check_learnt(log: StepLog) -> None:
    """That the rank's loss had fallen by some step."""
    losses = [step.loss for step in log.steps if step.loss is not None]
    assert any(has_fallen(losses[:steps]) for steps in range(len(losses) + 1)), losses


def two_colours(root: Path) -> Path:
    """An ImageNet-layout folder of two classes, a red one and a blue one, 8 images each."""
    lines = []
    for label, (red, blue) in {3: (200, 40), 700: (40, 200)}.items():
        (root / f"train/{label}").mkdir(parents=True)
        for number in range(8):
            name = f"train/{label}/{number}.jpeg"
            Image.new("RGB", (64, 64), (red + 4 * number, 40, blue + 4 * number)).save(root / name)
            lines.append(f"{name} {label}\n")
    (root / "train_list.txt").write_text("".join(lines), encoding="utf-8")
    return root


def learn(folder: Path, case_id: str, data: Path, interpreter: str, **settings: Any) -> Learnt:
    """Train until the loss has fallen, at most MOST_STEPS steps; then end what still runs."""
    rate = {"learning_rate": LEARNING_RATES[Case.parse(case_id).model.value]}
    spec = job(folder, case_id, data, MOST_STEPS, {**rate, **settings}, warmup_steps=0)

    def end_when_fallen(spec: JobSpec) -> None:
        while not has_fallen(losses := _read(spec)[0]):
            if len(losses) == MOST_STEPS:
                return
            time.sleep(0.1)
        kill(0)(spec)

    outcome = run(spec, interpreter, end_when_fallen)
    return Learnt(*_read(spec), outcome.reason)


def _read(spec: JobSpec) -> tuple[list[float], dict[str, str]]:
    """Losses and header facts of rank 0's log as far as it is written."""
    path = spec.step_log_path(0)
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    records = [json.loads(line) for line in lines]
    losses = [record["loss"] for record in records if "loss" in record]
    return losses, records[0]["facts"] if records else {}
