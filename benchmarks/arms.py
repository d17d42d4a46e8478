"""Arms for ``benchmarks.lockstep``: a case's trainer, or the bare loop beside it, in the same place."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.blocks import BARE, TRAIN
from benchmarks.lockstep import Arm
from helpers.plan.dataset import make_small_dataset
from helpers.plan.perf_yaml import load_config
from helpers.plan.recipes.recipe import settings_for
from helpers.session.suite import SMALL_DATASET
from helpers.trainers.contract.case import Case, DataSource, Precision
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.models import Model
from helpers.trainers.contract.paths import ROOT


@dataclass(frozen=True)
class Seat:
    """Where arms run: pinned to ``cores``, or on the GPU that ``cards`` names (CUDA_VISIBLE_DEVICES)."""

    cores: tuple[int, ...] = ()
    cards: tuple[str, ...] = ()
    interpreter: str = sys.executable

    @property
    def device(self) -> str:
        return "gpu" if self.cards else "cpu"

    @property
    def variables(self) -> dict[str, str]:
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(self.cards)}


def trainer_arm(
    name: str,
    case: Case,
    folder: Path,
    seat: Seat,
    *,
    loop: str = TRAIN,
    environment: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Arm:
    """The trainer of a one-card case; its job stands in a new file in ``folder``.

    ``environment`` and ``settings`` replace the recipe's own; its environment is there from the start of
    the process, as the suite gives it.
    """
    wanted = {**settings_for(case, seat.device), **(settings or {})}
    if environment is not None:
        wanted["environment"] = dict(environment)
    job_id = uuid.uuid4().hex
    spec = JobSpec(
        job_id=job_id,
        case=case,
        replicate=0,
        run_folder=str(folder / job_id),
        device=seat.device,
        warmup_steps=0,
        window_steps=1,
        data_root=None if case.data is DataSource.SYNTHETIC else str(make_small_dataset(SMALL_DATASET).root),
        settings=wanted,
        environment=wanted["environment"],
        cores=(seat.cores,) if seat.cores else (),
        cards=seat.cards,
    )
    path = folder / f"{job_id}.json"
    path.write_text(spec.to_json(), encoding="utf-8")
    argv = (seat.interpreter, "-m", "benchmarks.trainer_worker", str(path))
    return Arm(name, argv, loop, {**wanted["environment"], **seat.variables})


def bare_arm(name: str, case: Case, seat: Seat, settings: Mapping[str, Any]) -> Arm:
    """The bare loop over the same model, batch and precision. ConfigError where there is no such loop."""
    if case.model is not Model.RESNET50 or case.data is not DataSource.SYNTHETIC or case.framework not in _BARE:
        raise ConfigError(f"case {case.id}", got="no bare loop", expected="ResNet50 on synthetic data")
    module, options = _BARE[case.framework]
    argv = [seat.interpreter, "-m", module, "--batch-size", str(case.batch_size_per_card)]
    argv += ["--learning-rate", str(settings["learning_rate"]), *options(case, seat, settings)]
    return Arm(name, tuple(argv), BARE, {**settings["environment"], **seat.variables})


def _paddle_options(case: Case, seat: Seat, settings: Mapping[str, Any]) -> list[str]:
    if seat.device != "cpu" or len(seat.cores) != 1:
        raise ConfigError(f"case {case.id}", got="no bare loop there", expected="one core of a CPU")
    return ["--core", str(seat.cores[0]), *(["--bf16"] if case.precision.is_amp else [])]


def _pytorch_options(case: Case, seat: Seat, settings: Mapping[str, Any]) -> list[str]:
    if settings["amp_level"] == "O2" or settings["layout"] != "NCHW" or case.compile or case.graphs:
        raise ConfigError(f"case {case.id}", got="no bare loop", expected="NCHW, eager, float32 or autocast")
    argv = ["--device", "cuda"] if seat.device == "gpu" else ["--cores", *map(str, seat.cores)]
    if settings["amp_dtype"] is not None:
        argv += ["--amp-dtype", settings["amp_dtype"]]
    if settings["loss_scaling"] is not None:
        argv += ["--loss-scaling", str(settings["loss_scaling"])]
    if case.precision in (Precision.FP32, Precision.TF32):
        argv += ["--tf32", "on" if case.precision is Precision.TF32 else "off"]
    return argv + (["--cudnn-benchmark"] if settings["cudnn_benchmark"] else [])


_BARE: Mapping[Framework, tuple[str, Callable[[Case, Seat, Mapping[str, Any]], list[str]]]] = {
    Framework.PADDLE: ("benchmarks.bare_paddle_loop", _paddle_options),
    Framework.PYTORCH: ("benchmarks.bare_pytorch_loop", _pytorch_options),
}


def interpreter_of(framework: Framework) -> str:
    """perf.yaml's, else this one."""
    return load_config(ROOT / "perf.yaml").frameworks[framework].interpreter or sys.executable


def last_core() -> int:
    """The core that the benchmarks run on: the kernel's own work prefers the first."""
    return max(os.sched_getaffinity(0))
