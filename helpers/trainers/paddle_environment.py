"""Variables that Paddle and CUDA read when they are loaded: so this module imports neither."""

from __future__ import annotations

from typing import MutableMapping

from helpers.case import Precision
from helpers.job import JobSpec
from helpers.trainers.settings import Settings


def set_environment(spec: JobSpec, settings: Settings, environment: MutableMapping[str, str]) -> None:
    """Variables that Paddle and CUDA read when they are loaded; a variable of the job itself wins."""
    for name, value in settings.environment.items():
        environment[name] = spec.environment.get(name, str(value))
    if spec.device == "gpu" and spec.case.precision is Precision.FP32:
        environment["NVIDIA_TF32_OVERRIDE"] = "0"
    elif spec.case.precision is Precision.TF32:
        environment.pop("NVIDIA_TF32_OVERRIDE", None)
