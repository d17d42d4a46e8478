"""Measures a case's trainer beside a bare training loop of the same framework, in the same place, in turns."""

from __future__ import annotations

import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from helpers.plan.recipes.recipe import settings_for
from helpers.plan.small_dataset import make_small_dataset
from helpers.session.lockstep import Arm, Blocks, PairedRatio, Turns, pair_ratio, ratio_of, take_turns
from helpers.session.suite import SMALL_DATASET
from helpers.trainers.contract.blocks import BARE, FOR, TRAIN, StepBlock
from helpers.trainers.contract.case import Case, DataSource, Precision
from helpers.trainers.contract.errors import ConfigError
from helpers.trainers.contract.frameworks import Framework
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.models import Model

# The share of the bare loop's speed that the trainer must not be known to miss.
SPEED_LIMIT = 0.99
OTHER_PROCESS = "another process, wall clock"


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
    """The trainer of a one-card case; its job is written to a new file in ``folder``.

    ``environment`` and ``settings`` replace the recipe's own. The process starts with the environment, as in the suite.
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
    argv = (seat.interpreter, "-m", "helpers.trainers.common.block_worker", str(path))
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
    Framework.PADDLE: ("helpers.trainers.paddle.bare_loop", _paddle_options),
    Framework.PYTORCH: ("helpers.trainers.pytorch.bare_loop", _pytorch_options),
}


def measure_beside_bare_loop(case: Case, pairs: int, turns: Turns, seat: Seat) -> list[Blocks]:
    """The blocks of the trainer, of its bare steps and of the bare loop, from ``pairs`` pairs of fresh processes.

    Raises LaunchError.
    """
    with tempfile.TemporaryDirectory() as folder:
        train = trainer_arm(TRAIN, case, Path(folder), seat)
        bare = bare_arm(BARE, case, seat, settings_for(case, seat.device))
        arms = (train, replace(train, name=FOR, loop=FOR), bare)
        return [take_turns(arms if number % 2 == 0 else arms[::-1], turns) for number in range(pairs)]


def speeds(sets: Sequence[Blocks]) -> dict[str, PairedRatio]:
    """The trainer's speed over the two bare loops', by both clocks."""
    return {
        OTHER_PROCESS: _speed(sets, BARE, cpu=False),
        "another process, time on the core": _speed(sets, BARE, cpu=True),
        "its own process, wall clock": _speed(sets, FOR, cpu=False),
        "its own process, time on the core": _speed(sets, FOR, cpu=True),
    }


def _speed(sets: Sequence[Blocks], other: str, *, cpu: bool) -> PairedRatio:
    def seconds(block: StepBlock) -> float:
        return block.step_cpu_seconds if cpu else block.step_seconds

    return ratio_of(
        pair_ratio([seconds(block) for block in blocks[other]], [seconds(block) for block in blocks[TRAIN]])
        for blocks in sets
    )
