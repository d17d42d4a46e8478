"""Training that learns to tell two colours apart, in a real process of a framework's trainer."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from helpers.launch.launchers import launcher_for
from helpers.launch.launchers.launcher import job_environment
from helpers.plan.recipes.recipe import settings_for
from helpers.trainers.contract.case import Case
from helpers.trainers.contract.job import JobSpec

# The mean of two steps' losses, as a share of the first one: a guess among 1000 classes has ln 1000 = 6.9, so
# what is asked for is near ln 2, the loss of one who knows the two classes and cannot tell them apart.
FALLEN = 0.25
# Steps after which a mode that has not learnt does not learn. It takes 4 to 9.
MOST_STEPS = 16
# ResNet50 learns at most rates; without batch norm VGG16's loss explodes at ten times this one.
LEARNING_RATES = {"resnet50v1.5": 0.002, "vgg16": 0.0003}
PATIENCE_SECONDS = 600


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


def learn(
    folder: Path,
    case_id: str,
    data: Path,
    interpreter: str,
    cores: Sequence[int],
    steps: int = MOST_STEPS,
    **overrides: Any,
) -> Learnt:
    """Train until the loss has fallen, at most ``steps`` steps; then end what still runs."""
    case = Case.parse(case_id)
    overrides = {"learning_rate": LEARNING_RATES[case.model.value], **overrides}
    spec = JobSpec(
        job_id=uuid.uuid4().hex,
        case=case,
        replicate=0,
        run_folder=str(folder),
        device="cpu",
        warmup_steps=0,
        window_steps=steps,
        data_root=str(data),
        settings={**settings_for(case, "cpu"), **overrides},
        overrides=overrides,
        cores=tuple((cores[card % len(cores)],) for card in range(case.cards)),
    )
    spec.spec_path.write_text(spec.to_json(), encoding="utf-8")
    command = launcher_for(spec).command(spec, interpreter)
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
                _end(process)
        errors.seek(0)
        return Learnt(*_read(spec), errors.read()[-3000:])


def _end(process: subprocess.Popen[bytes]) -> None:
    """A launcher that is asked to end takes its ranks, which have sessions of their own, with it."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(15)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _read(spec: JobSpec) -> tuple[list[float], dict[str, str]]:
    """Losses and header facts of rank 0's log as far as it is written."""
    path = spec.step_log_path(0)
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    records = [json.loads(line) for line in lines]
    losses = [record["loss"] for record in records if "loss" in record]
    return losses, records[0]["facts"] if records else {}
