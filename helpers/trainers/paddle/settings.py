"""The settings of a Paddle case, read strictly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Mapping, Optional, Tuple

from helpers.trainers.common.settings import BASIC_AMP_LEVELS, AmpLevels, Settings, at_least, one_of, refused
from helpers.trainers.contract.case import Execution, Precision
from helpers.trainers.contract.job import JobSpec


@dataclass(frozen=True)
class PaddleSettings(Settings):
    """What Paddle has beside the settings of every framework."""

    AMP_LEVELS: ClassVar[AmpLevels] = {**BASIC_AMP_LEVELS, Precision.BF16: ("O2", "bfloat16")}

    # The accuracies that a static program computes at every step.
    accuracy_top_k: Tuple[int, ...]
    # What casts: ``auto_cast``; for static programs on a GPU ``decorate`` or ``fleet``.
    amp_through: Optional[str]
    build_strategy: Mapping[str, Any]
    execution_strategy: Mapping[str, Any]
    fleet: Mapping[str, Any]

    def _check(self, spec: JobSpec) -> None:
        super()._check(spec)
        if not isinstance(self.accuracy_top_k, tuple):
            raise refused("accuracy_top_k", self.accuracy_top_k, "a list of whole numbers")
        for k in self.accuracy_top_k:
            at_least("accuracy_top_k", k, 1)
        self._check_amp_through(spec)

    def _check_amp_through(self, spec: JobSpec) -> None:
        known: Tuple[Optional[str], ...] = (None,)
        if self.amp_level is not None:
            on_gpu = spec.device == "gpu" and spec.case.execution is Execution.STATIC
            known = ("decorate", "fleet") if on_gpu else ("auto_cast",)
        one_of("amp_through", self.amp_through, known)


# What helpers.trainers.common.settings reads a job of this framework into.
SETTINGS = PaddleSettings
