"""Settings of the frameworks whose publishers warmed up the learning rate and smoothed the labels."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Optional, Tuple

from helpers.trainers.common.settings import Settings, one_of, refused
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.models import CLASSES

STEP, COSINE = "step", "cosine"


@dataclass(frozen=True)
class ScheduledSettings(Settings):
    """The settings of every framework, and those of learning rate schedule, labels and batch norm."""

    # STEP: it changes at boundaries in epochs, as in every framework. COSINE: it falls along half a cosine to 0.
    learning_rate_schedule: str
    # Over so many steps the rate rises linearly from 0; with 0 it starts at its peak.
    learning_rate_warmup_steps: int
    # The length of the half cosine, counted from the first step; None for STEP.
    learning_rate_decay_steps: Optional[int]
    # The share of a label that is spread over all classes, from 0 to below 1.
    label_smoothing: float
    # Whether weight decay acts on batch norm's parameters too.
    decay_norms: bool
    # The share of the moving mean and variance that a step keeps, and the number added to the variance.
    batch_norm_momentum: float
    batch_norm_epsilon: float

    def rate(self, step: int, epoch: int) -> float:
        """The learning rate of the run's ``step`` in its ``epoch``, both counted from 0."""
        if step < self.learning_rate_warmup_steps:
            return self.learning_rate * step / self.learning_rate_warmup_steps
        if self.learning_rate_decay_steps is None:
            return self.learning_rates[bisect_right(self.learning_rate_boundaries, epoch)]
        passed = min(step / self.learning_rate_decay_steps, 1.0)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * passed))

    @property
    def label_targets(self) -> Tuple[float, float]:
        """The targets of the right class and of each other class."""
        spread = self.label_smoothing / CLASSES
        return 1 - self.label_smoothing + spread, spread

    def _check(self, spec: JobSpec) -> None:
        super()._check(spec)
        one_of("learning_rate_schedule", self.learning_rate_schedule, (STEP, COSINE))
        if bool(self.learning_rate_decay_steps) != (self.learning_rate_schedule == COSINE):
            raise refused("learning_rate_decay_steps", self.learning_rate_decay_steps, "steps for a cosine, else null")
        for name in ("label_smoothing", "batch_norm_momentum"):
            if getattr(self, name) >= 1:
                raise refused(name, getattr(self, name), "a number from 0 to below 1")
        if self.batch_norm_epsilon == 0:
            raise refused("batch_norm_epsilon", self.batch_norm_epsilon, "a positive number")
