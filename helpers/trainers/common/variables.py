"""Variables that a framework and CUDA read when they are loaded: so this module imports none."""

from __future__ import annotations

from typing import MutableMapping

from helpers.trainers.common.settings import Settings
from helpers.trainers.contract.case import Precision
from helpers.trainers.contract.job import JobSpec


def set_environment(spec: JobSpec, settings: Settings, environment: MutableMapping[str, str]) -> None:
    """The settings' variables and those of the precision; a variable of the job itself wins."""
    for name, value in settings.environment.items():
        environment[name] = spec.environment.get(name, str(value))
    if spec.device == "gpu" and spec.case.precision is Precision.FP32:
        environment["NVIDIA_TF32_OVERRIDE"] = "0"
    elif spec.case.precision is Precision.TF32:
        environment.pop("NVIDIA_TF32_OVERRIDE", None)
