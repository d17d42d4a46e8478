"""Settings of the frameworks whose publishers warmed up the learning rate and smoothed the labels."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import Dict, Optional, Tuple

from helpers.trainers.common.settings import Settings, at_least, common_facts, on, one_of, refused, switch
from helpers.trainers.contract.job import JobSpec
from helpers.trainers.contract.models import CLASSES
from helpers.trainers.contract.records import finite

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
        at_least("learning_rate_warmup_steps", self.learning_rate_warmup_steps, 0)
        if self.learning_rate_schedule == COSINE:
            at_least("learning_rate_decay_steps", self.learning_rate_decay_steps, 1)
        else:
            one_of("learning_rate_decay_steps", self.learning_rate_decay_steps, (None,))
        for name in ("label_smoothing", "batch_norm_momentum"):
            share = getattr(self, name)
            if not finite(share) or not 0 <= share < 1:
                raise refused(name, share, "a number from 0 to below 1")
        if not finite(self.batch_norm_epsilon) or self.batch_norm_epsilon <= 0:
            raise refused("batch_norm_epsilon", self.batch_norm_epsilon, "a positive number")
        switch("decay_norms", self.decay_norms)


def scheduled_facts(settings: ScheduledSettings) -> Dict[str, str]:
    """The header's facts on these settings, in addition to ``common_facts``."""
    peak, warmup = settings.learning_rate, settings.learning_rate_warmup_steps
    schedule = f"cosine over {settings.learning_rate_decay_steps} steps"
    if settings.learning_rate_schedule == STEP:
        boundaries = ", ".join(map(str, settings.learning_rate_boundaries))
        schedule = f"times {settings.learning_rate_decay} at epochs {boundaries}"
    momentum, epsilon = settings.batch_norm_momentum, settings.batch_norm_epsilon
    return {
        **common_facts(settings),
        "learning_rate": f"{peak}, {schedule}" + (f", warm-up of {warmup} steps" if warmup else ""),
        "label_smoothing": str(settings.label_smoothing) if settings.label_smoothing else "none",
        "decay_norms": on(settings.decay_norms),
        "batch_norm": f"momentum {momentum}, epsilon {epsilon}",
    }
