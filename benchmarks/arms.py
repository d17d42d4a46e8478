"""Arms for ``benchmarks.lockstep``: a case's trainer, or the bare loop beside it, on the same core."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.blocks import BARE, TRAIN
from benchmarks.lockstep import Arm
from helpers.case import Case, DataSource, Model
from helpers.dataset import make_small_dataset
from helpers.errors import ConfigError
from helpers.job import JobSpec
from helpers.recipe import settings_for
from helpers.suite import SMALL_DATASET


def trainer_arm(
    name: str,
    case: Case,
    folder: Path,
    *,
    loop: str = TRAIN,
    cores: Sequence[int],
    environment: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    interpreter: str = sys.executable,
) -> Arm:
    """The trainer of a one-card CPU case; its job stands in a new file in ``folder``.

    ``environment`` and ``settings`` replace the recipe's own; its environment is there from the start of
    the process, as the suite gives it.
    """
    wanted = {**settings_for(case, "cpu"), **(settings or {})}
    if environment is not None:
        wanted["environment"] = dict(environment)
    job_id = uuid.uuid4().hex
    spec = JobSpec(
        job_id=job_id,
        case=case,
        replicate=0,
        run_folder=str(folder / job_id),
        device="cpu",
        warmup_steps=0,
        window_steps=1,
        data_root=None if case.data is DataSource.SYNTHETIC else str(make_small_dataset(SMALL_DATASET).root),
        settings=wanted,
        environment=wanted["environment"],
        cores=(tuple(cores),),
    )
    path = folder / f"{job_id}.json"
    path.write_text(spec.to_json(), encoding="utf-8")
    argv = (interpreter, "-m", "benchmarks.trainer_worker", str(path))
    return Arm(name, argv, loop, wanted["environment"])


def bare_arm(name: str, case: Case, *, core: int, environment: Mapping[str, str], learning_rate: float) -> Arm:
    """The bare loop over the same model, batch and precision. ConfigError where it has no such loop."""
    if case.model is not Model.RESNET50 or case.data is not DataSource.SYNTHETIC:
        raise ConfigError(f"case {case.id}", got="no bare loop", expected="ResNet50 on synthetic data")
    argv = [sys.executable, "-m", "benchmarks.bare_paddle_loop", "--core", str(core)]
    argv += ["--batch-size", str(case.batch_size_per_card), "--learning-rate", str(learning_rate)]
    return Arm(name, tuple(argv + (["--bf16"] if case.precision.is_amp else [])), BARE, environment)


def last_core() -> int:
    """The core that the benchmarks run on: the kernel's own work prefers the first."""
    return max(os.sched_getaffinity(0))
